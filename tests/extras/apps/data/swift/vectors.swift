import Foundation

// Reads cases.json and raw-N.bin; writes what the package's processing makes of each: out-N.bin, stored-N.bin.
// Reads boxes.json and NAME.in; writes class, score, corners and points of each box: NAME.swift.
// Reads regions.json and NAME.in; writes the class of each pixel: NAME.swift.

struct Case: Decodable {
    let raw: String
    let dtype: String
    let shape: [Int]
    let resize: Int?
    let fit: String
    let bars: UInt8
    let crop: Int?
    let colour: String
    let scale: Double
    let mean: [Double]
    let std: [Double]
    let first: Bool
    let sound: [Int]?
    let floor: Double

    var declared: Preprocess {
        var found = Preprocess()
        (found.resize, found.crop, found.scale, found.mean, found.std) = (resize, crop, scale, mean, std)
        (found.fit, found.bars) = (Fit(rawValue: fit)!, bars)
        (found.colour, found.channelsFirst) = (Colour(rawValue: colour) ?? .rgb, first)
        found.spectrogram = sound.map {
            Spectrogram(rate: $0[0], window: $0[1], hop: $0[2], fft: $0[3], bins: $0[4], floor: floor, length: $0[5])
        }
        return found
    }

    func numbers(in folder: URL) throws -> [Float] {
        let data = try Data(contentsOf: folder.appendingPathComponent(raw))
        guard shape.isEmpty else {
            return try declared.of(
                Picture(bytes: [UInt8](data), height: shape[0], width: shape[1], channels: shape[2]))
        }
        let samples = try Numbers.floats(data, DType(rawValue: dtype) ?? .float32)
        return try declared.of(dtype == "int16" ? samples.map { $0 / 32768 } : samples)
    }
}

struct Output: Decodable {
    let name: String
    let shape: [Int]
}

struct Columns: Decodable {
    let name: String
    let axis: Int
    let first: Int
    let end: Int

    func of(_ outputs: [Output]) -> Boxes.Columns {
        Boxes.Columns(output: outputs.firstIndex { $0.name == name }!, axis: axis, first: first, end: end)
    }
}

struct How: Decodable {
    let boxes: Columns
    let scores: Columns
    let classes: Columns?
    let points: Columns?
    let point: Int
    let kind: String
    let background: Int?
    let anything: Bool
    let listed: Bool
    let format: String
    let unit: String
    let least: Double
    let overlap: Double
    let size: [Int]?
}

struct Detector: Decodable {
    let name: String
    let how: How
    let outputs: [Output]
    let picture: [Int]?
    let resize: Int
    let fit: String
    let crop: Int?

    func numbers(in folder: URL) throws -> [Double] {
        let data = try Data(contentsOf: folder.appendingPathComponent("\(name).in"))
        var rest = try Numbers.floats(data, .float32)[...]
        let given = outputs.map { output -> [Float] in
            let count = output.shape.reduce(1, *)
            defer { rest = rest.dropFirst(count) }
            return Array(rest.prefix(count))
        }
        var declared = Preprocess()
        (declared.resize, declared.fit, declared.crop) = (resize, Fit(rawValue: fit)!, crop)
        let reader = Boxes(
            boxes: how.boxes.of(outputs), scores: how.scores.of(outputs), classes: how.classes?.of(outputs),
            points: how.points?.of(outputs), point: how.point, kind: how.kind, background: how.background, anything: how.anything, listed: how.listed, format: how.format,
            shares: how.unit == "shares", least: how.least, overlap: how.overlap, size: how.size)
        let found = reader.of(given, outputs.map(\.shape), picture: picture, declared: declared)
        return found.flatMap { [Double($0.index), $0.score] + $0.corners + $0.points.flatMap { $0 } }
    }
}

struct Segmented: Decodable {
    struct How: Decodable {
        let axis: Int?
        let single: String
        let size: [Int]
    }

    let name: String
    let how: How
    let shape: [Int]
    let picture: [Int]?
    let resize: Int
    let fit: String
    let crop: Int?

    func classes(in folder: URL) throws -> [UInt8] {
        let numbers = try Numbers.floats(Data(contentsOf: folder.appendingPathComponent("\(name).in")), .float32)
        var declared = Preprocess()
        (declared.resize, declared.fit, declared.crop) = (resize, Fit(rawValue: fit)!, crop)
        let reader = Segments(output: 0, axis: how.axis, single: how.single, size: how.size)
        return reader.of(numbers, shape, picture: picture, declared: declared).classes
    }
}

let folder = URL(fileURLWithPath: "/given")
let how = Quantization(scale: Double(CommandLine.arguments[1])!, zeroPoint: Int(CommandLine.arguments[2])!)
let cases = try JSONDecoder().decode([Case].self, from: Data(contentsOf: folder.appendingPathComponent("cases.json")))
for (index, item) in cases.enumerated() {
    let found = try item.numbers(in: folder)
    try Numbers.encoded(found, .float32).write(to: folder.appendingPathComponent("out-\(index).bin"))
    try Numbers.quantized(found, .int8, how).write(to: folder.appendingPathComponent("stored-\(index).bin"))
}
let detectors = try JSONDecoder().decode(
    [Detector].self, from: Data(contentsOf: folder.appendingPathComponent("boxes.json")))
for item in detectors {
    let words = try item.numbers(in: folder).map { "\($0)\n" }.joined()
    try Data(words.utf8).write(to: folder.appendingPathComponent("\(item.name).swift"))
}
let regions = try JSONDecoder().decode(
    [Segmented].self, from: Data(contentsOf: folder.appendingPathComponent("regions.json")))
for item in regions {
    try Data(item.classes(in: folder)).write(to: folder.appendingPathComponent("\(item.name).swift"))
}
