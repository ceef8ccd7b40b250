import Foundation

/// What this device tells of itself.
enum Machine {
    static var device: Measured.Device {
        let info = ProcessInfo.processInfo
        return .init(
            name: model, platform: "\(system)-\(architecture)", os: info.operatingSystemVersionString, cpu: cpu,
            cores: info.activeProcessorCount)
    }

    /// Of the engine that runs the model: the system's own is as old as the system.
    static var runtimeVersion: String {
        ModelSpec.runtimeVersion ?? ProcessInfo.processInfo.operatingSystemVersionString
    }

    /// "iPhone16,1", "Mac15,3"; of a simulator, the device that it stands for.
    private static var model: String {
        if let simulated = ProcessInfo.processInfo.environment["SIMULATOR_MODEL_IDENTIFIER"] {
            return "\(simulated) (simulator)"
        }
        #if os(macOS)
        return text("hw.model") ?? "Mac"
        #else
        return text("hw.machine") ?? "unknown"
        #endif
    }

    private static var cpu: String {
        text("machdep.cpu.brand_string") ?? ""
    }

    private static var system: String {
        #if os(macOS)
        return "macos"
        #elseif os(iOS)
        return "ios"
        #elseif os(Linux)
        return "linux"
        #else
        return "other"
        #endif
    }

    private static var architecture: String {
        #if arch(arm64)
        return "arm64"
        #elseif arch(x86_64)
        return "x86_64"
        #else
        return "other"
        #endif
    }

    private static func text(_ name: String) -> String? {
        #if canImport(Darwin)
        var size = 0
        guard sysctlbyname(name, nil, &size, nil, 0) == 0, size > 0 else { return nil }
        var bytes = [UInt8](repeating: 0, count: size)
        guard sysctlbyname(name, &bytes, &size, nil, 0) == 0 else { return nil }
        return String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
        #else
        return nil
        #endif
    }
}
