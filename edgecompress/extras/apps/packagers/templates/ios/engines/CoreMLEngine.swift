import CoreML
import Foundation

/// The model opened by Core ML, which chooses between the CPU, the GPU and the Neural Engine.
///
/// What is packed is the `.mlpackage` itself, so that its bytes can be checked; Core ML compiles it for this device when
/// it is first opened, and the result is kept in the caches' folder under the sha256 of what it was compiled from.
final class CoreMLEngine: Engine {
    private let model: MLModel

    init(folder: URL) throws {
        let configuration = MLModelConfiguration()
        configuration.computeUnits = .all
        let compiled = try CoreMLEngine.compiled(folder.appendingPathComponent(ModelSpec.main))
        model = try MLModel(contentsOf: compiled, configuration: configuration)
    }

    private static func compiled(_ package: URL) throws -> URL {
        let files = FileManager.default
        let caches = try files.url(for: .cachesDirectory, in: .userDomainMask, appropriateFor: nil, create: true)
        let kept = caches.appendingPathComponent("edgecompress-\(ModelSpec.digest).mlmodelc", isDirectory: true)
        if files.fileExists(atPath: kept.path) { return kept }
        let made = try MLModel.compileModel(at: package)
        do {
            try files.moveItem(at: made, to: kept)
        } catch {
            return files.fileExists(atPath: kept.path) ? kept : made  // another thread was first, or there is no room
        }
        return kept
    }

    func run(_ inputs: [Data]) throws -> [Data] {
        var features: [String: MLFeatureValue] = [:]
        for (spec, data) in zip(ModelSpec.inputs, inputs) {
            features[spec.feature] = MLFeatureValue(multiArray: try CoreMLEngine.array(spec, data))
        }
        let answer = try model.prediction(from: MLDictionaryFeatureProvider(dictionary: features))
        return try ModelSpec.outputs.map { spec in
            guard let array = answer.featureValue(for: spec.feature)?.multiArrayValue else {
                throw PackageError("Core ML gave no '\(spec.feature)'")
            }
            return try CoreMLEngine.bytes(spec, array)
        }
    }

    private static func array(_ spec: TensorSpec, _ data: Data) throws -> MLMultiArray {
        let array = try MLMultiArray(shape: spec.shape.map { NSNumber(value: $0) }, dataType: type(spec))
        data.withUnsafeBytes { array.dataPointer.copyMemory(from: $0.baseAddress!, byteCount: spec.byteCount) }
        return array
    }

    private static func type(_ spec: TensorSpec) throws -> MLMultiArrayDataType {
        switch spec.dtype {
        case .float32: return .float32
        case .float64: return .double
        case .float16: return .float16
        case .int32: return .int32
        default: throw PackageError("Core ML takes no \(spec.dtype.rawValue)")
        }
    }

    /// The numbers in the order of the shape, however Core ML laid them out: element by element, along its strides.
    private static func bytes(_ spec: TensorSpec, _ array: MLMultiArray) throws -> Data {
        guard array.count == spec.count, array.dataType == (try type(spec)) else {
            throw PackageError("Core ML gave \(array.count) numbers for '\(spec.name)', or numbers of another type")
        }
        let shape = array.shape.map { $0.intValue }
        let strides = array.strides.map { $0.intValue }
        var found = Data(capacity: spec.byteCount)
        for index in 0..<spec.count {
            var rest = index
            var offset = 0
            for axis in shape.indices.reversed() {
                offset += rest % shape[axis] * strides[axis]
                rest /= shape[axis]
            }
            let element = array.dataPointer.advanced(by: offset * spec.dtype.size)
            found.append(element.assumingMemoryBound(to: UInt8.self), count: spec.dtype.size)
        }
        return found
    }
}
