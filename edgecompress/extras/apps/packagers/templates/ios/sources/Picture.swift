/// Pixels of 8 bits, row by row, the channels (1: grey, 3: red, green, blue) side by side.
struct Picture {
    var bytes: [UInt8]
    let height: Int
    let width: Int
    let channels: Int

    init(bytes: [UInt8], height: Int, width: Int, channels: Int) throws {
        guard height > 0, width > 0, channels == 1 || channels == 3, bytes.count == height * width * channels else {
            throw PackageError("\(bytes.count) bytes are no picture of \(width) x \(height) with \(channels) channels")
        }
        self.bytes = bytes
        self.height = height
        self.width = width
        self.channels = channels
    }

    /// The square of `size` pixels about the centre.
    func cropped(to size: Int) throws -> Picture {
        guard size >= 1, size <= min(height, width) else {
            throw PackageError("crop \(size) of a picture of \(width) x \(height); resize it first")
        }
        let top = Int((Double(height - size) / 2).rounded(.toNearestOrEven))
        let left = Int((Double(width - size) / 2).rounded(.toNearestOrEven))
        var found: [UInt8] = []
        found.reserveCapacity(size * size * channels)
        for row in top..<top + size {
            let begin = (row * width + left) * channels
            found += bytes[begin..<begin + size * channels]
        }
        return try Picture(bytes: found, height: size, width: size, channels: channels)
    }

    /// In the channels that a model takes.
    func coloured(_ colour: Colour) throws -> Picture {
        switch (colour, channels) {
        case (.gray, 1), (.rgb, 3): return self
        case (.bgr, 3): return try reversed()
        case (.gray, _): return try grey()
        default: throw PackageError("the picture is grey, the model takes \(colour.rawValue)")
        }
    }

    private func reversed() throws -> Picture {
        var found = bytes
        for pixel in stride(from: 0, to: found.count, by: 3) {
            found.swapAt(pixel, pixel + 2)
        }
        return try Picture(bytes: found, height: height, width: width, channels: 3)
    }

    /// Lightness, ITU-R 601-2, in 1 / 65536.
    private func grey() throws -> Picture {
        let found = stride(from: 0, to: bytes.count, by: 3).map { pixel -> UInt8 in
            let red = 19595 * Int(bytes[pixel])
            let green = 38470 * Int(bytes[pixel + 1])
            let blue = 7471 * Int(bytes[pixel + 2])
            return UInt8((red + green + blue + 0x8000) >> 16)
        }
        return try Picture(bytes: found, height: height, width: width, channels: 1)
    }
}

/// The order of the channels that a model takes.
enum Colour: String {
    case rgb = "RGB"
    case bgr = "BGR"
    case gray = "GRAY"
}
