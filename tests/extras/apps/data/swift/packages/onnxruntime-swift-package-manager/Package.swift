// swift-tools-version: 5.9
import PackageDescription

let package = Package(
    name: "OnnxRuntimeBindings",
    products: [
        .library(name: "onnxruntime", targets: ["OnnxRuntimeBindings"]),
    ],
    targets: [.target(name: "OnnxRuntimeBindings")]
)
