// swift-tools-version: 5.9
import PackageDescription

let package = Package(
    name: "LiteRT",
    products: [
        .library(name: "LiteRT", targets: ["LiteRT"]),
    ],
    targets: [.target(name: "LiteRT")]
)
