import Foundation

// What the package calls of ONNX Runtime's Objective-C interface, as Swift sees it; runs are replayed.

public enum ORTLoggingLevel: Int32 { case verbose, info, warning, error, fatal }

public enum ORTGraphOptimizationLevel: Int32 { case none, basic, extended, all }

public enum ORTTensorElementDataType: Int32 { case undefined, float, int8, uInt8, int32, uInt32, int64, uInt64, string }

open class ORTEnv {
    public init(loggingLevel: ORTLoggingLevel) throws {}
}

open class ORTSessionOptions {
    public init() throws {}
    open func setGraphOptimizationLevel(_ graphOptimizationLevel: ORTGraphOptimizationLevel) throws {}
    open func setIntraOpNumThreads(_ intraOpNumThreads: Int32) throws {}
    open func addConfigEntry(withKey key: String, value: String) throws {}
}

open class ORTRunOptions {}

open class ORTValue {
    private let data: NSMutableData

    public init(tensorData: NSMutableData, elementType: ORTTensorElementDataType, shape: [NSNumber]) throws {
        data = tensorData
    }

    open func tensorData() throws -> NSMutableData { data }
}

open class ORTSession {
    public init(env: ORTEnv, modelPath path: String, sessionOptions: ORTSessionOptions?) throws {
        guard FileManager.default.fileExists(atPath: path) else { throw Replay.Unknown() }
    }

    open func run(
        withInputs inputs: [String: ORTValue], outputNames: Set<String>, runOptions: ORTRunOptions?
    ) throws -> [String: ORTValue] {
        let given = try Replay.names("inputs").map { name -> Data in
            guard let value = inputs[name] else { throw Replay.Unknown() }
            return try value.tensorData() as Data
        }
        var found: [String: ORTValue] = [:]
        for (name, answer) in zip(Replay.names("outputs"), try Replay.answers(given)) where outputNames.contains(name) {
            found[name] = try ORTValue(tensorData: NSMutableData(data: answer), elementType: .float, shape: [])
        }
        return found
    }
}
