import Foundation

/// One step of the self-test.
struct Finding {
    let step: String
    let ok: Bool
    let detail: String
}

/// Whether this package still computes what it computed when it was packed, with constants that are compiled in.
struct SelfTest {
    let model: Packaged

    func steps() -> [Finding] {
        [
            step("files", files),
            step("processing", processing),
            step("inference", inference),
            step("labels", labels),
        ]
    }

    private func step(_ name: String, _ check: () throws -> String) -> Finding {
        do {
            return Finding(step: name, ok: true, detail: try check())
        } catch {
            return Finding(step: name, ok: false, detail: String(describing: error))
        }
    }

    /// sha256 of each model and golden file, and of the labels; nothing else lies in those folders.
    private func files() throws -> String {
        let beside = ModelSpec.goldenFiles + [ModelSpec.labels]
        for (folder, files) in [(model.models, ModelSpec.files), (model.folder, beside)] {
            for file in files {
                let found = try Digest.sha256(of: folder.appendingPathComponent(file.path))
                guard found == file.sha256 else { throw PackageError("\(file.path) is not the file that was packed") }
            }
        }
        return "\(ModelSpec.files.count + beside.count) files as they were packed"
    }

    /// The golden raw item, processed here, is the golden input; the card says the constants that are compiled in.
    private func processing() throws -> String {
        try card()
        guard let preprocess = ModelSpec.preprocess else { return "no processing is declared" }
        guard let raw = ModelSpec.goldenRaw else { return "no raw item was kept" }
        let spec = ModelSpec.inputs[preprocess.input]
        let golden = ModelSpec.goldenInputs.first { $0.tensor == preprocess.input }
        guard let golden else { throw PackageError("no golden input is of '\(spec.name)'") }
        let wanted = try Numbers.decoded(model.golden(golden), golden.dtype)
        let made = try Numbers.decoded(spec.stored(processed(raw, by: preprocess), as: preprocess.gives), spec.dtype)
        let distance = Distance.largest(wanted, made)
        let limit = spec.dtype.isWhole ? ModelSpec.processingWhole : ModelSpec.processingReal * largest(wanted)
        guard distance <= limit else { throw PackageError("the input is up to \(distance) off, more than \(limit)") }
        return "the input is at most \(distance) off"
    }

    /// Of real numbers the error is relative to the largest one, and to 1 where all are smaller.
    private func largest(_ numbers: [Double]) -> Double {
        numbers.reduce(1) { max($0, abs($1)) }
    }

    private func processed(_ raw: GoldenSpec, by preprocess: Preprocess) throws -> [Float] {
        let data = try model.golden(raw)
        guard preprocess.picture else {
            let numbers = try Numbers.floats(data, raw.dtype)
            let audio = preprocess.spectrogram != nil && raw.dtype == .int16
            return try preprocess.of(audio ? numbers.map { $0 / 32768 } : numbers)
        }
        guard raw.dtype == .uint8, raw.shape.count == 2 || raw.shape.count == 3 else {
            throw PackageError("the raw item is no picture")
        }
        let channels = raw.shape.count == 3 ? raw.shape[2] : 1
        return try preprocess.of(
            Picture(bytes: [UInt8](data), height: raw.shape[0], width: raw.shape[1], channels: channels))
    }

    /// What is compiled in of the processing is what the card beside it says.
    private func card() throws {
        let data = try Data(contentsOf: model.folder.appendingPathComponent(ModelSpec.card))
        let card = try JSONDecoder().decode(Card.self, from: data)
        let declared = ModelSpec.preprocess
        let same = card.preprocess?.scale == declared?.scale && card.preprocess?.mean == declared?.mean
            && card.preprocess?.std == declared?.std
        guard same else { throw PackageError("the card's scale, mean or std are not those that are compiled in") }
    }

    /// The golden inputs, run here, give the golden outputs.
    private func inference() throws -> String {
        let answers = try answered()
        var worst = 0.0
        for golden in ModelSpec.goldenOutputs {
            let spec = ModelSpec.outputs[golden.tensor]
            let wanted = try Numbers.floats(model.golden(golden), golden.dtype)
            let distance = Distance.relativeRMS(wanted, try spec.real(answers[golden.tensor]))
            guard distance <= ModelSpec.tolerance else {
                throw PackageError("'\(spec.name)' is \(distance) off (relative RMS), more than \(ModelSpec.tolerance)")
            }
            worst = max(worst, distance)
        }
        return "the answer is \(worst) off (relative RMS)"
    }

    /// The best class of the answer is called what that of the golden answer is called.
    private func labels() throws -> String {
        if ModelSpec.boxes != nil { return try thing() }
        if ModelSpec.segments != nil { return try region() }
        guard ModelSpec.classifies else { return "it names no classes" }
        let golden = ModelSpec.goldenOutputs.first { $0.tensor == ModelSpec.scores }
        guard let golden else { throw PackageError("no golden output has the scores") }
        let wanted = best(try Numbers.floats(model.golden(golden), golden.dtype))
        let found = best(try ModelSpec.outputs[golden.tensor].real(answered()[golden.tensor]))
        guard let wanted, let found, model.label(wanted) == model.label(found) else {
            throw PackageError("the best class is not that of the golden answer")
        }
        return "the best class is the golden one"
    }

    /// What a detector is surest of is called what it was called in the golden answer.
    private func thing() throws -> String {
        let sides = try [answered(), golden()].map { try model.boxes($0, picture: nil).first.map { model.label($0.index) } }
        guard sides[0] == sides[1] else { throw PackageError("what it is surest of is not that of the golden answer") }
        return sides[0] == nil ? "it finds nothing, as in the golden answer" : "it is surest of what the golden answer is"
    }

    /// The class that most cells have is called what it was called in the golden answer.
    private func region() throws -> String {
        let sides = try [answered(), golden()].map { Segments.most(try model.segments($0, picture: nil).classes) }
        guard model.label(sides[0]) == model.label(sides[1]) else {
            throw PackageError("the most frequent class is not that of the golden answer")
        }
        return "the most frequent class is the golden one"
    }

    /// The golden answer, as the model stores it.
    private func golden() throws -> [Data] {
        var golden = [Data](repeating: Data(), count: ModelSpec.outputs.count)
        for item in ModelSpec.goldenOutputs {
            let spec = ModelSpec.outputs[item.tensor]
            golden[item.tensor] = try spec.stored(Numbers.floats(model.golden(item), item.dtype))
        }
        return golden
    }

    private func best(_ scores: [Float]) -> Int? {
        Classes.best(scores, 1).first
    }

    private func answered() throws -> [Data] {
        var inputs = [Data](repeating: Data(), count: ModelSpec.inputs.count)
        for golden in ModelSpec.goldenInputs {
            inputs[golden.tensor] = try model.golden(golden)
        }
        return try model.run(inputs)
    }

    private struct Card: Decodable {
        let preprocess: Declared?
    }

    private struct Declared: Decodable {
        let scale: Double
        let mean: [Double]
        let std: [Double]
    }
}
