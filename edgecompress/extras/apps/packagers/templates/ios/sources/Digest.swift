import CryptoKit
import Foundation

/// sha256, in lower-case hexadecimal.
enum Digest {
    static func sha256(_ data: Data) -> String {
        SHA256.hash(data: data).map { String(format: "%02x", $0) }.joined()
    }

    /// Of a file, which is mapped and never whole in memory.
    static func sha256(of file: URL) throws -> String {
        sha256(try Data(contentsOf: file, options: .mappedIfSafe))
    }
}
