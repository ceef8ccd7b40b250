import Foundation

/// Stands in for a runtime: answers the inputs that the test wrote with the outputs that it wrote, and no others.
enum Replay {
    struct Unknown: Error {}

    static let folder = URL(fileURLWithPath: ProcessInfo.processInfo.environment["REPLAY"] ?? "/given/replay")

    static func names(_ side: String) -> [String] {
        let text = (try? String(contentsOf: folder.appendingPathComponent("\(side).txt"), encoding: .utf8)) ?? ""
        return text.split(separator: "\n").map(String.init)
    }

    static func answers(_ inputs: [Data]) throws -> [Data] {
        for (index, input) in inputs.enumerated() where try read("input-\(index).bin") != input {
            throw Unknown()
        }
        return try names("outputs").indices.map { try read("output-\($0).bin") }
    }

    private static func read(_ name: String) throws -> Data {
        try Data(contentsOf: folder.appendingPathComponent(name))
    }
}
