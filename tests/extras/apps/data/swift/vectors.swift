import Foundation

// Reads cases.json and raw-N.bin; writes what the package's processing makes of each: out-N.bin, stored-N.bin.

struct Case: Decodable {
    let raw: String
    let dtype: String
    let shape: [Int]
    let resize: Int?
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

let folder = URL(fileURLWithPath: "/given")
let how = Quantization(scale: Double(CommandLine.arguments[1])!, zeroPoint: Int(CommandLine.arguments[2])!)
let cases = try JSONDecoder().decode([Case].self, from: Data(contentsOf: folder.appendingPathComponent("cases.json")))
for (index, item) in cases.enumerated() {
    let found = try item.numbers(in: folder)
    try Numbers.encoded(found, .float32).write(to: folder.appendingPathComponent("out-\(index).bin"))
    try Numbers.quantized(found, .int8, how).write(to: folder.appendingPathComponent("stored-\(index).bin"))
}
