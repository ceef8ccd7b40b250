import Foundation

// What the package calls of LiteRT's Swift interface, with its signatures; runs are replayed.

public enum Accelerator: Int32 { case none = 0, cpu = 1, gpu = 2, npu = 4 }

public final class Environment {
    public init() throws {}
}

public final class Options {
    public init() throws {}
    public func setHardwareAccelerators(_ accelerators: Set<Accelerator>) throws {}
}

public final class TensorBuffer {
    var data = Data()

    public func write<T>(_ data: [T]) throws { throw Replay.Unknown() }
    public func write(_ data: Data) throws { self.data = data }
    public func read() throws -> Data { data }
    public func read<T>() throws -> [T] { throw Replay.Unknown() }
}

public final class CompiledModel {
    public init(filePath: String, environment: Environment, options: Options? = nil) throws {
        guard FileManager.default.fileExists(atPath: filePath) else { throw Replay.Unknown() }
    }

    public func run(
        inputs: [TensorBuffer], outputs: [TensorBuffer], options: Options? = nil, signatureIndex: Int = 0
    ) throws {
        for (buffer, answer) in zip(outputs, try Replay.answers(inputs.map { $0.data })) {
            buffer.data = answer
        }
    }

    public func run(
        inputs: [TensorBuffer], options: Options? = nil, signatureIndex: Int = 0
    ) throws -> [TensorBuffer] {
        throw Replay.Unknown()
    }

    public func createInputBuffers(signatureIndex: Int = 0) throws -> [TensorBuffer] {
        Replay.names("inputs").map { _ in TensorBuffer() }
    }

    public func createOutputBuffers(signatureIndex: Int = 0) throws -> [TensorBuffer] {
        Replay.names("outputs").map { _ in TensorBuffer() }
    }

    public func inputName(inputIndex: Int, signatureIndex: Int = 0) throws -> String {
        Replay.names("inputs")[inputIndex]
    }

    public func outputName(outputIndex: Int, signatureIndex: Int = 0) throws -> String {
        Replay.names("outputs")[outputIndex]
    }
}
