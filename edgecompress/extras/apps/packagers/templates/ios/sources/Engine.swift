import Foundation

/// A runtime with the model opened in it: bytes of each input, in the order of `ModelSpec.inputs`, to those of outputs.
protocol Engine {
    func run(_ inputs: [Data]) throws -> [Data]
}

/// One input or output of the model.
struct TensorSpec {
    let name: String
    let feature: String  // what the runtime calls it
    let shape: [Int]
    let dtype: DType
    let quantization: Quantization?

    var count: Int { shape.reduce(1, *) }
    var byteCount: Int { count * dtype.size }

    /// Real numbers as the tensor stores them; stored ones as they are.
    func stored(_ numbers: [Float], as kind: Kind = .real) throws -> Data {
        guard numbers.count == count else {
            throw PackageError("'\(name)' takes \(count) numbers \(shape), not \(numbers.count)")
        }
        guard let quantization, kind == .real else { return try Numbers.encoded(numbers, dtype) }
        return try Numbers.quantized(numbers, dtype, quantization)
    }

    /// What the tensor's bytes mean.
    func real(_ data: Data) throws -> [Float] {
        guard data.count == byteCount else {
            throw PackageError("'\(name)' holds \(byteCount) bytes, not \(data.count)")
        }
        guard let quantization else { return try Numbers.floats(data, dtype) }
        return try Numbers.real(data, dtype, quantization)
    }
}

/// What numbers are: what they mean, or what a quantized tensor stores for that.
enum Kind {
    case real, stored
}

/// A file of the package, and the sha256 that it had when it was packed.
struct FileSpec {
    let path: String
    let bytes: Int
    let sha256: String
}

/// Stored numbers of one test item.
struct GoldenSpec {
    let tensor: Int  // of the model's inputs, or of its outputs
    let path: String
    let shape: [Int]
    let dtype: DType
}
