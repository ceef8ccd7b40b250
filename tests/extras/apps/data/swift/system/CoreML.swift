import Foundation

// What the package calls of Apple's Core ML, with its signatures; predictions are replayed.

public enum MLComputeUnits { case cpuOnly, cpuAndGPU, all, cpuAndNeuralEngine }

public enum MLMultiArrayDataType: Int {
    case double = 8, float32 = 4, float16 = 2, int32 = 5

    var size: Int { self == .int32 ? 4 : rawValue }
}

public final class MLModelConfiguration {
    public var computeUnits = MLComputeUnits.all
    public init() {}
}

public final class MLMultiArray {
    public let shape: [NSNumber]
    public let dataType: MLMultiArrayDataType
    public let dataPointer: UnsafeMutableRawPointer

    public init(shape: [NSNumber], dataType: MLMultiArrayDataType) throws {
        self.shape = shape
        self.dataType = dataType
        dataPointer = .allocate(byteCount: 2 * shape.reduce(dataType.size) { $0 * $1.intValue }, alignment: 16)
    }

    deinit { dataPointer.deallocate() }

    public var count: Int { shape.reduce(1) { $0 * $1.intValue } }

    /// In elements. As Core ML may, it leaves room: each row of the last axis is as long again.
    public var strides: [NSNumber] {
        var found: [NSNumber] = []
        var step = padded ? 2 : 1
        for size in shape.reversed() {
            found.insert(NSNumber(value: step), at: 0)
            step *= size.intValue
        }
        return found
    }

    var padded = false
}

public final class MLFeatureValue {
    public let multiArrayValue: MLMultiArray?
    public init(multiArray value: MLMultiArray) { multiArrayValue = value }
}

public protocol MLFeatureProvider {
    func featureValue(for featureName: String) -> MLFeatureValue?
}

public final class MLDictionaryFeatureProvider: MLFeatureProvider {
    private let values: [String: MLFeatureValue]

    public init(dictionary: [String: Any]) throws {
        values = dictionary.compactMapValues { $0 as? MLFeatureValue }
    }

    public func featureValue(for featureName: String) -> MLFeatureValue? { values[featureName] }
}

public class MLModel {
    public static func compileModel(at modelURL: URL) throws -> URL {
        let made = FileManager.default.temporaryDirectory.appendingPathComponent(UUID().uuidString)
        try FileManager.default.copyItem(at: modelURL, to: made)
        return made
    }

    public init(contentsOf url: URL, configuration: MLModelConfiguration) throws {
        guard FileManager.default.fileExists(atPath: url.path) else { throw Replay.Unknown() }
    }

    public func prediction(from input: MLFeatureProvider) throws -> MLFeatureProvider {
        let inputs = try Replay.names("inputs").map { name -> Data in
            guard let array = input.featureValue(for: name)?.multiArrayValue else { throw Replay.Unknown() }
            return Data(bytes: array.dataPointer, count: array.count * array.dataType.size)
        }
        let answers = try Replay.answers(inputs)
        var found: [String: Any] = [:]
        for (name, answer) in zip(Replay.names("outputs"), answers) {
            found[name] = MLFeatureValue(multiArray: try array(answer))
        }
        return try MLDictionaryFeatureProvider(dictionary: found)
    }

    /// Single precision, [1, n], every second place empty.
    private func array(_ data: Data) throws -> MLMultiArray {
        let array = try MLMultiArray(shape: [1, NSNumber(value: data.count / 4)], dataType: .float32)
        array.padded = true
        for (index, begin) in stride(from: 0, to: data.count, by: 4).enumerated() {
            data.copyBytes(to: UnsafeMutableRawBufferPointer(start: array.dataPointer + 8 * index, count: 4), from: begin..<begin + 4)
        }
        return array
    }
}
