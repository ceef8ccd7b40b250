import Foundation

/// A class and how probable it is.
struct Scored {
    let index: Int
    let label: String
    let probability: Float
}

/// The model of this package: opened by its runtime, checked against what it answered when it was packed.
///
/// It may be shared by threads and tasks: all but the engine never changes, and the lock lets one at a time ask that.
final class Packaged: @unchecked Sendable {
    let folder: URL
    let models: URL  // the folder of the model's files: that one, but where they are packed
    let labels: [String]
    private let engine: Engine
    private let lock = NSLock()
    private let queue = DispatchQueue(label: "edgecompress", qos: .userInitiated)

    init(folder: URL, models: URL, engine: Engine) throws {
        self.folder = folder
        self.models = models
        self.engine = engine
        labels = try JSONDecoder().decode([String].self, from: Packaged.read(ModelSpec.labels, in: folder))
    }

    /// Real numbers of each input, by name -> those of each output.
    func run(_ inputs: [String: [Float]]) throws -> [String: [Float]] {
        let given = try ModelSpec.inputs.map { spec -> Data in
            guard let numbers = inputs[spec.name] else { throw PackageError("the input '\(spec.name)' is missing") }
            return try spec.stored(numbers)
        }
        let answers = try zip(ModelSpec.outputs, run(given)).map { spec, data in (spec.name, try spec.real(data)) }
        return Dictionary(answers) { first, _ in first }
    }

    func run(_ inputs: [Data]) throws -> [Data] {
        for (spec, data) in zip(ModelSpec.inputs, inputs) where data.count != spec.byteCount {
            throw PackageError("'\(spec.name)' takes \(spec.byteCount) bytes, not \(data.count)")
        }
        lock.lock()
        defer { lock.unlock() }
        let answers = try engine.run(inputs)
        guard answers.count == ModelSpec.outputs.count else {
            throw PackageError("the model gave \(answers.count) outputs, not \(ModelSpec.outputs.count)")
        }
        return answers
    }

    /// What `work` gives, on a queue of its own: neither the caller's actor nor a thread of the tasks' pool waits.
    func later<Answer: Sendable>(_ work: @escaping @Sendable () throws -> Answer) async throws -> Answer {
        try await withCheckedThrowingContinuation { waiting in
            queue.async { waiting.resume(with: Result(catching: work)) }
        }
    }

    /// The classes that the answer names for the only input, best first; real or stored numbers, as the model takes them.
    func classes(_ numbers: [Float], as kind: Kind = .real) throws -> [Scored] {
        guard ModelSpec.inputs.count == 1 else { throw PackageError("this model takes several inputs: use run") }
        let scores = try scores(run([ModelSpec.inputs[0].stored(numbers, as: kind)]))
        return Classes.best(scores, ModelSpec.topK).map { Scored(index: $0, label: label($0), probability: scores[$0]) }
    }

    /// What a detector finds for the only input, best first; `picture`: height and width of what became it.
    func boxes(_ numbers: [Float], as kind: Kind = .real, picture: [Int]?) throws -> [Boxes.Box] {
        guard ModelSpec.inputs.count == 1 else { throw PackageError("this model takes several inputs: use run") }
        return try boxes(run([ModelSpec.inputs[0].stored(numbers, as: kind)]), picture: picture)
    }

    /// What a detector's answer says.
    func boxes(_ answers: [Data], picture: [Int]?) throws -> [Boxes.Box] {
        guard let reader = ModelSpec.boxes else { throw PackageError("this model finds no boxes: use run") }
        let outputs = try zip(ModelSpec.outputs, answers).map { spec, data in try spec.real(data) }
        return reader.of(outputs, ModelSpec.outputs.map(\.shape), picture: picture, declared: ModelSpec.preprocess)
    }

    /// The class of each pixel that the answer to the only input tells; `picture`: height and width of what became it.
    func segments(_ numbers: [Float], as kind: Kind = .real, picture: [Int]?) throws -> Segments.Plane {
        guard ModelSpec.inputs.count == 1 else { throw PackageError("this model takes several inputs: use run") }
        return try segments(run([ModelSpec.inputs[0].stored(numbers, as: kind)]), picture: picture)
    }

    /// The class of each pixel that an answer tells.
    func segments(_ answers: [Data], picture: [Int]?) throws -> Segments.Plane {
        guard let reader = ModelSpec.segments else { throw PackageError("this model tells no classes of pixels: use run") }
        let spec = ModelSpec.outputs[reader.output]
        let declared = ModelSpec.preprocess ?? Preprocess()
        return try reader.of(spec.real(answers[reader.output]), spec.shape, picture: picture, declared: declared)
    }

    /// Probabilities of the classes.
    func scores(_ outputs: [Data]) throws -> [Float] {
        let output = ModelSpec.scores
        let numbers = try ModelSpec.outputs[output].real(outputs[output])
        return ModelSpec.probabilities ? numbers : Classes.softmax(numbers)
    }

    /// What a class is called: its number, where the package has no name for it.
    func label(_ index: Int) -> String {
        labels.indices.contains(index) ? labels[index] : String(index)
    }

    /// A golden file's bytes; throws where it is not as long as its shape says.
    func golden(_ spec: GoldenSpec) throws -> Data {
        let data = try Data(contentsOf: folder.appendingPathComponent(spec.path), options: .mappedIfSafe)
        guard data.count == spec.shape.reduce(spec.dtype.size, *) else {
            throw PackageError("\(spec.path) has \(data.count) bytes, not those of \(spec.shape) \(spec.dtype.rawValue)")
        }
        return data
    }

    private static func read(_ file: FileSpec, in folder: URL) throws -> Data {
        try Data(contentsOf: folder.appendingPathComponent(file.path))
    }
}
