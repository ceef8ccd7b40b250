import Foundation

/// From raw data to a model's input, in this order: resize, crop (the centre), colour, x * scale, (x - mean) / std,
/// layout; of audio: spectrogram, x * scale, (x - mean) / std. What is not set is not done.
struct Preprocess {
    var input: Int = 0  // which of the model's inputs it makes
    var picture = false  // whether raw data are pictures
    var resize: Int?
    var fit = Fit.shorter
    var bars: UInt8 = 114  // the grey of what a letterbox fills up
    var crop: Int?
    var colour = Colour.rgb
    var scale: Double = 1
    var mean: [Double] = []
    var std: [Double] = []
    var channelsFirst = false
    var spectrogram: Spectrogram?
    var gives = Kind.real  // what it makes of raw data

    /// A picture as the model takes it.
    func of(_ raw: Picture) throws -> [Float] {
        var image = raw
        if let resize { image = try Resize.fitted(image, to: resize, fit, bars: bars) }
        if let crop { image = try image.cropped(to: crop) }
        image = try image.coloured(colour)
        return planes(try normalised(image.bytes.map(Float.init)), image.channels)
    }

    /// Where a picture lies in the input: there x is `across` * x - `left`, and y `down` * y - `top`.
    struct Placement {
        let across: Double
        let down: Double
        let left: Int
        let top: Int
    }

    /// Of a picture of a size, in pixels.
    func placement(height: Int, width: Int) -> Placement {
        let (tall, wide) = resize.map { Resize.size(height, width, to: $0, fit) } ?? (height, width)
        let side = fit == .letterbox ? resize : crop
        func begin(_ length: Int) -> Int {
            guard let side else { return 0 }
            if length < side { return -((side - length) / 2) }
            return Int((Double(length - side) / 2).rounded(.toNearestOrEven))
        }
        return Placement(
            across: Double(wide) / Double(width), down: Double(tall) / Double(height), left: begin(wide), top: begin(tall))
    }

    /// Audio, or any other numbers, as the model takes them: what only a picture has is not done.
    func of(_ raw: [Float]) throws -> [Float] {
        guard let spectrogram else { return try normalised(raw) }
        return try normalised(spectrogram.of(raw.map(Double.init)))
    }

    /// Each operation rounded to 32 bits, as numpy does it.
    func normalised(_ x: [Float]) throws -> [Float] {
        let factor = Float(scale)
        let means = mean.isEmpty ? [0] : mean.map(Float.init)
        let deviations = std.isEmpty ? [1] : std.map(Float.init)
        guard x.count % means.count == 0, x.count % deviations.count == 0 else {
            throw PackageError("\(x.count) numbers are not of \(max(means.count, deviations.count)) channels")
        }
        return x.indices.map { i in
            let scaled = x[i] * factor
            let centred = scaled - means[i % means.count]
            return centred / deviations[i % deviations.count]
        }
    }

    private func planes(_ x: [Float], _ channels: Int) -> [Float] {
        if !channelsFirst || channels == 1 { return x }
        let pixels = x.count / channels
        var found = x
        for i in x.indices {
            found[i % channels * pixels + i / channels] = x[i]
        }
        return found
    }
}

/// From scores to classes.
enum Classes {
    /// exp(x) / sum of exp(x), the largest taken off first so that nothing overflows; in double precision inside.
    static func softmax(_ scores: [Float]) -> [Float] {
        let largest = Double(scores.max() ?? 0)
        let powers = scores.map { exp(Double($0) - largest) }
        let sum = powers.reduce(0, +)
        return powers.map { Float($0 / sum) }
    }

    /// Indices of the `count` highest scores, best first; equal ones by index; NaN is lowest.
    static func best(_ scores: [Float], _ count: Int) -> [Int] {
        let order = scores.indices.sorted { a, b in
            if scores[a].isNaN || scores[b].isNaN {
                return scores[a].isNaN == scores[b].isNaN ? a < b : scores[b].isNaN
            }
            return scores[a] == scores[b] ? a < b : scores[a] > scores[b]
        }
        return Array(order.prefix(max(0, count)))
    }
}
