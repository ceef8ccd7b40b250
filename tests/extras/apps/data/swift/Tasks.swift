import Foundation
import XCTest

@testable import SmallPets

/// One model, asked by many tasks at once, answers what it answers alone.
final class TasksTests: XCTestCase {
    func testTasksShareOneModel() async throws {
        let model = try SmallPetsModel.load()
        let item = ModelSpec.goldenInputs[0]
        let folder = try XCTUnwrap(Bundle.module.resourceURL)
        let data = try Data(contentsOf: folder.appendingPathComponent(item.path))
        let spec = ModelSpec.inputs[item.tensor]
        let inputs = [spec.name: try spec.real(data)]
        let alone = try model.run(inputs)
        let together = try await withThrowingTaskGroup(of: [String: [Float]].self) { group in
            for _ in 0..<16 {
                group.addTask { try await model.predict(inputs) }
                group.addTask { try model.run(inputs) }
            }
            return try await group.reduce(into: []) { $0.append($1) }
        }
        XCTAssertEqual(together, Array(repeating: alone, count: 32))
    }
}
