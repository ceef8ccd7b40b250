import ExecuTorch
import Foundation

/// The model opened by ExecuTorch. Its backends and kernels register themselves when the app starts: the linker has to
/// keep them (`-all_load`, see README.md).
final class ExecuTorchEngine: Engine {
    private let module: Module

    init(folder: URL) throws {
        module = Module(filePath: folder.appendingPathComponent(ModelSpec.main).path, loadMode: .mmap)
        try module.load("forward")
    }

    func run(_ inputs: [Data]) throws -> [Data] {
        let tensors = try zip(ModelSpec.inputs, inputs).map { spec, data in
            AnyTensor(data: data, shape: spec.shape, dataType: try ExecuTorchEngine.type(spec))
        }
        return try module.forward(tensors).map { value in
            guard let tensor: AnyTensor = value.anyTensor else { throw PackageError("ExecuTorch gave no tensor") }
            var found = Data()
            tensor.bytes { pointer, count, type in
                found = Data(bytes: pointer, count: count * ExecuTorchEngine.size(type))
            }
            return found
        }
    }

    private static func type(_ spec: TensorSpec) throws -> DataType {
        switch spec.dtype {
        case .float32: return .float
        case .float64: return .double
        case .int8: return .char
        case .uint8: return .byte
        case .int16: return .short
        case .int32: return .int
        case .int64: return .long
        case .bool: return .bool
        case .float16: return .half
        }
    }

    private static func size(_ type: DataType) -> Int {
        switch type {
        case .double, .long: return 8
        case .float, .int: return 4
        case .short, .half: return 2
        default: return 1
        }
    }
}
