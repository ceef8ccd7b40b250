import Foundation
import LiteRT

/// The model opened by LiteRT, on the CPU: what it was verified on.
final class LiteRTEngine: Engine {
    private let model: CompiledModel
    private let inputs: [TensorBuffer]
    private let outputs: [TensorBuffer]
    private let inputOrder: [Int]  // of ModelSpec's tensors in the file's signature
    private let outputOrder: [Int]

    init(folder: URL) throws {
        let options = try Options()
        try options.setHardwareAccelerators([.cpu])
        let file = folder.appendingPathComponent(ModelSpec.main).path
        model = try CompiledModel(filePath: file, environment: try Environment(), options: options)
        inputs = try model.createInputBuffers()
        outputs = try model.createOutputBuffers()
        let opened = model
        inputOrder = try LiteRTEngine.order(
            ModelSpec.inputs, try inputs.indices.map { try opened.inputName(inputIndex: $0) })
        outputOrder = try LiteRTEngine.order(
            ModelSpec.outputs, try outputs.indices.map { try opened.outputName(outputIndex: $0) })
    }

    func run(_ given: [Data]) throws -> [Data] {
        for (data, place) in zip(given, inputOrder) {
            try inputs[place].write(data)
        }
        try model.run(inputs: inputs, outputs: outputs)
        return try outputOrder.map { place -> Data in try outputs[place].read() }
    }

    /// Where each tensor stands in the signature: by name, or in the given order where the signature has other names.
    private static func order(_ specs: [TensorSpec], _ names: [String]) throws -> [Int] {
        guard names.count == specs.count else {
            throw PackageError("the file has \(names.count) tensors where the package has \(specs.count)")
        }
        let places = specs.compactMap { names.firstIndex(of: $0.name) }
        return Set(places).count == specs.count ? places : Array(specs.indices)
    }
}
