#if canImport(CoreGraphics)
import CoreGraphics

extension Picture {
    /// The picture's pixels in sRGB, upright as they are stored: what its metadata says of its orientation is not asked.
    init(_ image: CGImage) throws {
        let (height, width) = (image.height, image.width)
        var pixels = [UInt8](repeating: 255, count: height * width * 4)
        let drawn = pixels.withUnsafeMutableBytes { buffer -> Bool in
            guard
                let space = CGColorSpace(name: CGColorSpace.sRGB),
                let context = CGContext(
                    data: buffer.baseAddress, width: width, height: height, bitsPerComponent: 8, bytesPerRow: width * 4,
                    space: space, bitmapInfo: CGImageAlphaInfo.noneSkipLast.rawValue)
            else { return false }
            context.interpolationQuality = .none
            context.draw(image, in: CGRect(x: 0, y: 0, width: width, height: height))
            return true
        }
        guard drawn else { throw PackageError("no pixels can be had of a picture of \(width) x \(height)") }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(height * width * 3)
        for pixel in stride(from: 0, to: pixels.count, by: 4) {
            bytes += pixels[pixel..<pixel + 3]
        }
        try self.init(bytes: bytes, height: height, width: width, channels: 3)
    }
}
#endif
