import Foundation

// What the package calls of ExecuTorch's Swift interface, with its signatures; runs are replayed.

public enum DataType: Int32 {
    case byte, char, short, int, long, half, float, double, complexHalf, complexFloat, complexDouble, bool, undefined
}

public enum ShapeDynamism: Int { case `static`, dynamicBound, dynamicUnbound }

public enum ModuleLoadMode: Int { case file, mmap, mmapUseMlock, mmapUseMlockIgnoreErrors }

public protocol ValueConvertible {
    func asValue() -> Value
}

open class AnyTensor: ValueConvertible {
    let data: Data
    let dataType: DataType

    public required init(
        data: Data, shape: [Int], strides: [Int] = [], dimensionOrder: [Int] = [], dataType: DataType,
        shapeDynamism: ShapeDynamism = .dynamicBound
    ) {
        self.data = data
        self.dataType = dataType
    }

    /// The number of elements, as ExecuTorch tells it.
    open func bytes(_ handler: (UnsafeRawPointer, Int, DataType) -> Void) {
        data.withUnsafeBytes { handler($0.baseAddress!, $0.count / 4, dataType) }
    }

    public func asValue() -> Value { Value(self) }
}

open class Value {
    public let anyTensor: AnyTensor?

    init(_ tensor: AnyTensor) { anyTensor = tensor }
}

open class Module {
    private let path: String

    public init(filePath: String, loadMode: ModuleLoadMode = .file) { path = filePath }

    open func load(_ method: String) throws {
        guard FileManager.default.fileExists(atPath: path) else { throw Replay.Unknown() }
    }

    public func forward(_ inputs: [ValueConvertible]) throws -> [Value] {
        let given = inputs.compactMap { $0.asValue().anyTensor?.data }
        return try Replay.answers(given).map { Value(AnyTensor(data: $0, shape: [], dataType: .float)) }
    }

    public func forward(_ inputs: ValueConvertible...) throws -> [Value] { try forward(inputs) }
}
