import Foundation

/// How long one inference takes on this device, as the JSON that `edgecompress report --add` reads.
struct Benchmark {
    let model: Packaged
    let started = Date()

    /// `count` inferences of the golden inputs, each timed alone, after `warmup` that are not.
    func json(count: Int, warmup: Int) throws -> String {
        let inputs = try golden()
        for _ in 0..<warmup {
            _ = try model.run(inputs)
        }
        let latencies = try (0..<count).map { _ in try timed(inputs) }
        let passed = SelfTest(model: model).steps().allSatisfy { $0.ok }
        let measured = Measured(
            schema: "edgecompress/measured/1",
            model: .init(name: ModelSpec.name, sha256: ModelSpec.digest),
            runtime: .init(name: ModelSpec.runtime, version: Machine.runtimeVersion),
            device: Machine.device,
            run: .init(threads: ModelSpec.threads, batch: 1, warmup: warmup, started: Benchmark.time(started)),
            self_test: passed ? "pass" : "fail",
            latencies_ns: latencies,
            clock: "ContinuousClock",
            clock_step_ns: Benchmark.clockStep())
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return String(decoding: try encoder.encode(measured), as: UTF8.self)
    }

    private func golden() throws -> [Data] {
        var inputs = [Data](repeating: Data(), count: ModelSpec.inputs.count)
        for item in ModelSpec.goldenInputs {
            inputs[item.tensor] = try model.golden(item)
        }
        return inputs
    }

    private func timed(_ inputs: [Data]) throws -> Int64 {
        let clock = ContinuousClock()
        let begin = clock.now
        _ = try model.run(inputs)
        return Benchmark.nanoseconds(begin.duration(to: clock.now))
    }

    private static func nanoseconds(_ duration: Duration) -> Int64 {
        let (seconds, attoseconds) = duration.components
        return seconds * 1_000_000_000 + attoseconds / 1_000_000_000
    }

    /// The smallest difference of two readings that is seen, in nanoseconds.
    private static func clockStep() -> Int64 {
        let clock = ContinuousClock()
        var smallest = Int64.max
        for _ in 0..<100 {
            let begin = clock.now
            var end = clock.now
            while end == begin { end = clock.now }
            smallest = min(smallest, nanoseconds(begin.duration(to: end)))
        }
        return max(1, smallest)
    }

    private static func time(_ date: Date) -> String {
        ISO8601DateFormatter().string(from: date)
    }
}

/// edgecompress/measured/1; `browser` is left out: there is none.
struct Measured: Encodable {
    struct Model: Encodable {
        let name: String
        let sha256: String
    }

    struct Runtime: Encodable {
        let name: String
        let version: String
    }

    struct Device: Encodable {
        let name: String
        let platform: String
        let os: String
        let cpu: String
        let cores: Int
    }

    struct Run: Encodable {
        let threads: Int
        let batch: Int
        let warmup: Int
        let started: String
    }

    let schema: String
    let model: Model
    let runtime: Runtime
    let device: Device
    let run: Run
    let self_test: String
    let latencies_ns: [Int64]
    let clock: String
    let clock_step_ns: Int64
}
