import Foundation
import OnnxRuntimeBindings

/// The model opened by ONNX Runtime, on the CPU: what it was verified on.
final class ONNXEngine: Engine {
    private let environment: ORTEnv
    private let session: ORTSession

    init(folder: URL) throws {
        environment = try ORTEnv(loggingLevel: .warning)
        let options = try ORTSessionOptions()
        try options.setIntraOpNumThreads(Int32(ModelSpec.threads))
        for (name, value) in ModelSpec.settings {
            try ONNXEngine.apply(name, value, options)
        }
        let file = folder.appendingPathComponent(ModelSpec.main).path
        session = try ORTSession(env: environment, modelPath: file, sessionOptions: options)
    }

    func run(_ inputs: [Data]) throws -> [Data] {
        var given: [String: ORTValue] = [:]
        for (spec, data) in zip(ModelSpec.inputs, inputs) {
            given[spec.feature] = try ORTValue(
                tensorData: NSMutableData(data: data), elementType: try ONNXEngine.type(spec),
                shape: spec.shape.map { NSNumber(value: $0) })
        }
        let names = Set(ModelSpec.outputs.map { $0.feature })
        let answer = try session.run(withInputs: given, outputNames: names, runOptions: nil)
        return try ModelSpec.outputs.map { spec in
            guard let value = answer[spec.feature] else { throw PackageError("ONNX Runtime gave no '\(spec.feature)'") }
            return try value.tensorData() as Data
        }
    }

    /// One of the settings that the model was verified with.
    private static func apply(_ name: String, _ value: String, _ options: ORTSessionOptions) throws {
        switch name {
        case "graph_optimization_level":
            let levels: [String: ORTGraphOptimizationLevel] = [
                "ORT_DISABLE_ALL": .none, "ORT_ENABLE_BASIC": .basic, "ORT_ENABLE_EXTENDED": .extended,
            ]
            try options.setGraphOptimizationLevel(levels[value] ?? .all)
        case "execution_mode", "enable_cpu_mem_arena":
            break  // it has no other: operators run in sequence, with an arena
        default:
            try options.addConfigEntry(withKey: name, value: value)
        }
    }

    private static func type(_ spec: TensorSpec) throws -> ORTTensorElementDataType {
        switch spec.dtype {
        case .float32: return .float
        case .int8: return .int8
        case .uint8: return .uInt8
        case .int32: return .int32
        case .int64: return .int64
        default: throw PackageError("ONNX Runtime's Swift binding takes no \(spec.dtype.rawValue)")
        }
    }
}
