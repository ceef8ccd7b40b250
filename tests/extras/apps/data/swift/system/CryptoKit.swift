import Foundation

/// What the package calls of Apple's CryptoKit, by FIPS 180-4.
public enum SHA256 {
    private static let primes = (2...311).filter { n in !(2..<n).contains { n % $0 == 0 } }
    private static let constants = primes.map { fraction(cbrt(Double($0))) }
    private static let start = primes.prefix(8).map { fraction(Double($0).squareRoot()) }

    private static func fraction(_ x: Double) -> UInt32 {
        UInt32((x - x.rounded(.down)) * 4_294_967_296)
    }

    public static func hash(data: Data) -> [UInt8] {
        var state = start
        let message = padded(data)
        for begin in stride(from: 0, to: message.count, by: 64) {
            mix(&state, message[begin..<begin + 64])
        }
        return state.flatMap { word in withUnsafeBytes(of: word.bigEndian) { [UInt8]($0) } }
    }

    private static func padded(_ data: Data) -> [UInt8] {
        var found = [UInt8](data)
        found.append(0x80)
        while found.count % 64 != 56 {
            found.append(0)
        }
        withUnsafeBytes(of: (UInt64(data.count) * 8).bigEndian) { found.append(contentsOf: $0) }
        return found
    }

    private static func mix(_ state: inout [UInt32], _ block: ArraySlice<UInt8>) {
        var words: [UInt32] = []
        for begin in stride(from: block.startIndex, to: block.endIndex, by: 4) {
            words.append(block[begin..<begin + 4].reduce(UInt32(0)) { $0 << 8 | UInt32($1) })
        }
        for i in 16..<64 {
            let (a, b) = (words[i - 15], words[i - 2])
            let low = turned(a, 7) ^ turned(a, 18) ^ a >> 3
            let high = turned(b, 17) ^ turned(b, 19) ^ b >> 10
            words.append(words[i - 16] &+ low &+ words[i - 7] &+ high)
        }
        var v = state
        for i in 0..<64 {
            let first = turned(v[4], 6) ^ turned(v[4], 11) ^ turned(v[4], 25)
            let choice = (v[4] & v[5]) ^ (~v[4] & v[6])
            let added = v[7] &+ first &+ choice &+ constants[i] &+ words[i]
            let second = turned(v[0], 2) ^ turned(v[0], 13) ^ turned(v[0], 22)
            let majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2])
            v = [added &+ second &+ majority, v[0], v[1], v[2], v[3] &+ added, v[4], v[5], v[6]]
        }
        for i in 0..<8 {
            state[i] = state[i] &+ v[i]
        }
    }

    private static func turned(_ word: UInt32, _ bits: UInt32) -> UInt32 {
        word >> bits | word << (32 - bits)
    }
}
