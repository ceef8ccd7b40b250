// swift-tools-version: 5.9
import PackageDescription

let package = Package(
    name: "ExecuTorch",
    products: [
        .library(name: "executorch", targets: ["ExecuTorch"]),
        .library(name: "backend_xnnpack", targets: ["ExecuTorch"]),
        .library(name: "kernels_optimized", targets: ["ExecuTorch"]),
        .library(name: "kernels_quantized", targets: ["ExecuTorch"]),
        .library(name: "backend_coreml", targets: ["ExecuTorch"]),
    ],
    targets: [.target(name: "ExecuTorch")]
)
