import Foundation

/// The numbers that a tensor holds, as their bytes lie in memory and in the golden files: little-endian.
enum DType: String {
    case bool, int8, uint8, int16, int32, int64, float16, float32, float64

    /// Bytes of one number.
    var size: Int {
        switch self {
        case .bool, .int8, .uint8: return 1
        case .int16, .float16: return 2
        case .int32, .float32: return 4
        case .int64, .float64: return 8
        }
    }

    /// Whether its numbers are whole.
    var isWhole: Bool {
        switch self {
        case .float16, .float32, .float64: return false
        default: return true
        }
    }
}

/// real = (stored - zeroPoint) * scale, of a whole tensor.
struct Quantization {
    let scale: Double
    let zeroPoint: Int
}

/// What a package's model was asked or answered that cannot be.
struct PackageError: Error, CustomStringConvertible, LocalizedError {
    let description: String
    var errorDescription: String? { description }

    init(_ description: String) {
        self.description = description
    }
}

/// Between bytes and numbers.
enum Numbers {
    /// The numbers in `data`. Exact for all dtypes but int64 beyond 2^53.
    static func decoded(_ data: Data, _ dtype: DType) throws -> [Double] {
        guard data.count % dtype.size == 0 else {
            throw PackageError("\(data.count) bytes are no whole number of \(dtype.rawValue)")
        }
        switch dtype {
        case .bool, .uint8: return data.map(Double.init)
        case .int8: return integers(data, Int8.self)
        case .int16: return integers(data, Int16.self)
        case .int32: return integers(data, Int32.self)
        case .int64: return integers(data, Int64.self)
        case .float16: return bits(data, UInt16.self).map { Double(half($0)) }
        case .float32: return bits(data, UInt32.self).map { Double(Float(bitPattern: $0)) }
        case .float64: return bits(data, UInt64.self).map { Double(bitPattern: $0) }
        }
    }

    /// The numbers in `data`, in single precision.
    static func floats(_ data: Data, _ dtype: DType) throws -> [Float] {
        if dtype == .float32, data.count % dtype.size == 0 {
            return bits(data, UInt32.self).map(Float.init(bitPattern:))
        }
        return try decoded(data, dtype).map(Float.init)
    }

    /// `numbers` as `dtype` stores them: whole ones are rounded half to even, and cut off where the dtype ends.
    static func encoded(_ numbers: [Float], _ dtype: DType) throws -> Data {
        switch dtype {
        case .bool: return bytes(numbers.map { $0 != 0 ? UInt8(1) : 0 })
        case .int8: return bytes(numbers.map { whole($0, Int8.self) })
        case .uint8: return bytes(numbers.map { whole($0, UInt8.self) })
        case .int16: return bytes(numbers.map { whole($0, Int16.self) })
        case .int32: return bytes(numbers.map { whole($0, Int32.self) })
        case .int64: return bytes(numbers.map { whole($0, Int64.self) })
        case .float16: throw PackageError("this package takes no float16; give it float32")
        case .float32: return bytes(numbers.map { $0.bitPattern })
        case .float64: return bytes(numbers.map { Double($0).bitPattern })
        }
    }

    /// Real numbers as a quantized tensor stores them: rounded half to even in single precision, then cut off.
    static func quantized(_ numbers: [Float], _ dtype: DType, _ by: Quantization) throws -> Data {
        let scale = Float(by.scale)
        let zeroPoint = Double(by.zeroPoint)
        let stored = numbers.map { Float(Double(($0 / scale).rounded(.toNearestOrEven)) + zeroPoint) }
        return try encoded(stored, dtype)
    }

    /// What a quantized tensor's bytes mean.
    static func real(_ data: Data, _ dtype: DType, _ by: Quantization) throws -> [Float] {
        let scale = Float(by.scale)
        return try decoded(data, dtype).map { Float($0 - Double(by.zeroPoint)) * scale }
    }

    private static func integers<T: FixedWidthInteger>(_ data: Data, _ type: T.Type) -> [Double] {
        bits(data, type).map { Double($0) }
    }

    private static func bits<T: FixedWidthInteger>(_ data: Data, _ type: T.Type) -> [T] {
        let size = MemoryLayout<T>.size
        return data.withUnsafeBytes { raw in
            (0..<data.count / size).map { T(littleEndian: raw.loadUnaligned(fromByteOffset: $0 * size, as: T.self)) }
        }
    }

    private static func bytes<T: FixedWidthInteger>(_ values: [T]) -> Data {
        values.map { $0.littleEndian }.withUnsafeBufferPointer { Data(buffer: $0) }
    }

    private static func whole<T: FixedWidthInteger>(_ number: Float, _ type: T.Type) -> T {
        if number.isNaN {
            return 0
        }
        return T(exactly: number.rounded(.toNearestOrEven)) ?? (number < 0 ? T.min : T.max)
    }

    /// The number that 16 bits of IEEE 754 stand for: not every machine that runs this has the type.
    private static func half(_ bits: UInt16) -> Float {
        let sign: Float = bits & 0x8000 == 0 ? 1 : -1
        let exponent = Int(bits >> 10 & 31)
        let fraction = Float(bits & 1023)
        switch exponent {
        case 0: return sign * fraction / 16_777_216
        case 31: return fraction == 0 ? sign * Float.infinity : Float.nan
        default: return sign * (1024 + fraction) * Float(sign: .plus, exponent: exponent - 25, significand: 1)
        }
    }
}

/// How far an answer is from a stored one.
enum Distance {
    /// sqrt(sum (found - wanted)^2 / sum wanted^2): 0 where they are equal, infinite where they cannot be compared.
    static func relativeRMS(_ wanted: [Float], _ found: [Float]) -> Double {
        guard wanted.count == found.count else { return .infinity }
        var error = 0.0
        var power = 0.0
        for (want, have) in zip(wanted, found) {
            let difference = Double(have) - Double(want)
            error += difference * difference
            power += Double(want) * Double(want)
        }
        if error == 0 { return 0 }
        let ratio = (error / power).squareRoot()
        return ratio.isNaN ? .infinity : ratio
    }

    /// The largest |found - wanted|; infinite where they cannot be compared.
    static func largest(_ wanted: [Double], _ found: [Double]) -> Double {
        guard wanted.count == found.count else { return .infinity }
        var largest = 0.0
        for (want, have) in zip(wanted, found) {
            let difference = abs(have - want)
            if difference.isNaN { return .infinity }
            largest = max(largest, difference)
        }
        return largest
    }
}
