import Foundation

/// ln(max(magnitude, floor)) of the short-time Fourier transform: frames of a clip, each under a periodic Hann window
/// and padded with zeros to the length of the transform; on request the magnitudes are summed under triangles on the
/// mel scale.
struct Spectrogram {
    let rate: Int  // samples per second
    let window: Int  // samples of a frame
    let hop: Int  // samples from one frame to the next
    let fft: Int  // length of the transform, a power of two
    let bins: Int  // mel bands, or 0 for every frequency: fft / 2 + 1
    let floor: Double  // what smaller magnitudes count as
    let length: Int  // samples of a clip: the end is cut off, or zeros are added

    /// Samples in -1..1 -> [frames][bins].
    func of(_ samples: [Double]) throws -> [Float] {
        guard window >= 1, hop >= 1, fft >= max(window, 2), fft.nonzeroBitCount == 1, length >= window else {
            throw PackageError("window \(window), hop \(hop), fft \(fft), length \(length) do not fit together")
        }
        var clip = [Double](repeating: 0, count: length)
        for i in 0..<min(length, samples.count) {
            clip[i] = samples[i]
        }
        let hann = (0..<window).map { 0.5 - 0.5 * cos(2 * Double.pi * Double($0) / Double(window)) }
        let transform = Fourier(size: fft)
        let bands = bins == 0 ? [] : mel()
        var found: [Float] = []
        for begin in stride(from: 0, through: length - window, by: hop) {
            let magnitudes = transform.magnitudes(zip(hann, clip[begin..<begin + window]).map { $0 * $1 })
            let row = bands.isEmpty ? magnitudes : bands.map { sum($0, magnitudes) }
            found += row.map { Float(log(max($0, floor))) }
        }
        return found
    }

    private func sum(_ weights: [Double], _ magnitudes: [Double]) -> Double {
        var sum = 0.0
        for i in 0..<weights.count {
            sum += weights[i] * magnitudes[i]
        }
        return sum
    }

    /// Triangles whose corners lie evenly on the mel scale from 0 to the highest frequency; frequency 0 is in none.
    private func mel() -> [[Double]] {
        let frequencies = fft / 2 + 1
        let highest = Double(rate) / 2
        let step = mel(highest) / Double(bins + 1)
        return (0..<bins).map { bin in
            (0..<frequencies).map { i in
                if i == 0 { return 0 }
                let at = mel(highest * Double(i) / Double(frequencies - 1)) / step - Double(bin)
                return max(0, min(at, 2 - at))
            }
        }
    }

    private func mel(_ hertz: Double) -> Double {
        1127 * log1p(hertz / 700)
    }
}

/// The discrete Fourier transform of a power of two: decimation in time (Cooley and Tukey 1965).
private struct Fourier {
    let size: Int
    let cosines: [Double]
    let sines: [Double]

    init(size: Int) {
        self.size = size
        cosines = (0..<size / 2).map { cos(2 * Double.pi * Double($0) / Double(size)) }
        sines = (0..<size / 2).map { sin(2 * Double.pi * Double($0) / Double(size)) }
    }

    /// |sum over n of x[n] exp(-2 pi i k n / size)| for k in 0...size / 2; `x` is padded with zeros.
    func magnitudes(_ x: [Double]) -> [Double] {
        var real = reordered(x + [Double](repeating: 0, count: size - x.count))
        var imaginary = [Double](repeating: 0, count: size)
        var half = 1
        while half < size {
            for begin in stride(from: 0, to: size, by: 2 * half) {
                for i in 0..<half {
                    let turn = i * (size / (2 * half))
                    let (low, high) = (begin + i, begin + i + half)
                    let r = real[high] * cosines[turn] + imaginary[high] * sines[turn]
                    let j = imaginary[high] * cosines[turn] - real[high] * sines[turn]
                    (real[high], imaginary[high]) = (real[low] - r, imaginary[low] - j)
                    (real[low], imaginary[low]) = (real[low] + r, imaginary[low] + j)
                }
            }
            half *= 2
        }
        return (0...size / 2).map { (real[$0] * real[$0] + imaginary[$0] * imaginary[$0]).squareRoot() }
    }

    /// In the order of the indices' bits read backwards.
    private func reordered(_ x: [Double]) -> [Double] {
        let bits = size.trailingZeroBitCount
        return (0..<size).map { index in
            var backwards = 0
            for bit in 0..<bits where index >> bit & 1 == 1 {
                backwards |= 1 << (bits - 1 - bit)
            }
            return x[backwards]
        }
    }
}
