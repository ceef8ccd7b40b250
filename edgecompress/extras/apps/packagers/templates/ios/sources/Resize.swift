/// What `resize` is of: the shorter side; both sides; a square that the picture lies in whole, between bars.
enum Fit: String {
    case shorter, stretch, letterbox
}

/// Bilinear resizing with antialiasing, to the bit as Pillow computes it: each output pixel is a weighted mean of the
/// input pixels under a triangle, as wide as the scale where a picture shrinks. The weights are whole numbers of
/// 1 / 2^22; rows come first, then columns, rounded to 8 bits after each.
enum Resize {
    private static let bits = 32 - 8 - 2

    /// By `fit`; a letterbox is filled up with the grey `bars`.
    static func fitted(_ picture: Picture, to size: Int, _ fit: Fit, bars: UInt8) throws -> Picture {
        guard size >= 1 else { throw PackageError("a side is at least 1 pixel, not \(size)") }
        let (height, width) = Resize.size(picture.height, picture.width, to: size, fit)
        let inside = try whole(picture, height: height, width: width)
        guard fit == .letterbox else { return inside }
        let step = picture.channels
        var found = [UInt8](repeating: bars, count: size * size * step)
        for y in 0..<height {
            let begin = ((y + (size - height) / 2) * size + (size - width) / 2) * step
            found.replaceSubrange(begin..<begin + width * step, with: inside.bytes[y * width * step..<(y + 1) * width * step])
        }
        return try Picture(bytes: found, height: size, width: size, channels: step)
    }

    /// The height and width that a picture is resized to.
    static func size(_ height: Int, _ width: Int, to size: Int, _ fit: Fit) -> (Int, Int) {
        switch fit {
        case .stretch: return (size, size)
        case .letterbox:  // rounded, halves up
            let longer = max(height, width)
            return (max(1, (2 * size * height + longer) / (2 * longer)), max(1, (2 * size * width + longer) / (2 * longer)))
        case .shorter:
            let shorter = Double(min(height, width))
            return (Int(Double(size * height) / shorter), Int(Double(size * width) / shorter))
        }
    }

    /// To exactly this size, whatever becomes of the proportions.
    static func whole(_ picture: Picture, height: Int, width: Int) throws -> Picture {
        let wide = width == picture.width ? picture : try rows(picture, width: width)
        return height == wide.height ? wide : try columns(wide, height: height)
    }

    private static func rows(_ picture: Picture, width: Int) throws -> Picture {
        let weights = Weights(from: picture.width, to: width)
        let step = picture.channels
        var found = [UInt8](repeating: 0, count: picture.height * width * step)
        for y in 0..<picture.height {
            for x in 0..<width {
                for channel in 0..<step {
                    let begin = (y * picture.width + weights.first[x]) * step + channel
                    found[(y * width + x) * step + channel] = mean(picture.bytes, begin, step, weights.of[x])
                }
            }
        }
        return try Picture(bytes: found, height: picture.height, width: width, channels: step)
    }

    private static func columns(_ picture: Picture, height: Int) throws -> Picture {
        let weights = Weights(from: picture.height, to: height)
        let step = picture.width * picture.channels
        var found = [UInt8](repeating: 0, count: height * step)
        for y in 0..<height {
            for i in 0..<step {
                found[y * step + i] = mean(picture.bytes, weights.first[y] * step + i, step, weights.of[y])
            }
        }
        return try Picture(bytes: found, height: height, width: picture.width, channels: picture.channels)
    }

    private static func mean(_ bytes: [UInt8], _ begin: Int, _ step: Int, _ weights: [Int]) -> UInt8 {
        var sum = 1 << (bits - 1)
        var at = begin
        for weight in weights {
            sum += Int(bytes[at]) * weight
            at += step
        }
        return UInt8(max(0, min(255, sum >> bits)))
    }

    /// For each output pixel of one axis: the first input pixel that counts, and the weights of it and those after.
    private struct Weights {
        var first: [Int] = []
        var of: [[Int]] = []

        init(from: Int, to: Int) {
            let scale = Double(Float(from)) / Double(to)
            let reach = max(scale, 1)
            for i in 0..<to {
                let centre = (Double(i) + 0.5) * scale
                let begin = max(0, Int(centre - reach + 0.5))
                let end = min(from, Int(centre + reach + 0.5))
                first.append(begin)
                of.append(Weights.triangle(begin..<end, centre, reach))
            }
        }

        private static func triangle(_ pixels: Range<Int>, _ centre: Double, _ reach: Double) -> [Int] {
            let inverse = 1 / reach
            let heights = pixels.map { max(0, 1 - abs((Double($0) - centre + 0.5) * inverse)) }
            let sum = heights.reduce(0, +)
            return heights.map { Int(0.5 + (sum == 0 ? $0 : $0 / sum) * Double(1 << bits)) }
        }
    }
}
