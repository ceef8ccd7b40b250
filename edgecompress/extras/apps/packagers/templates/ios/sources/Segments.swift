import Foundation

/// The class of each pixel, read out of an output as the card's `postprocess.segment` says.
struct Segments {
    /// Classes of pixels or of cells, row by row.
    struct Plane {
        let height: Int
        let width: Int
        let classes: [UInt8]
    }

    static let unseen: UInt8 = 255  // of a pixel outside of what the model saw

    let output: Int  // its place in the list of outputs
    let axis: Int?  // of the classes; nil where the output holds their numbers
    let single: String  // what the one channel is: "probability" or "logit"; "" where there are several
    let size: [Int]  // height and width of the input

    /// The class of each pixel of the picture, [height, width], that became the input by `declared`; without one that of
    /// each cell of the output.
    func of(_ numbers: [Float], _ shape: [Int], picture: [Int]?, declared: Preprocess) -> Plane {
        let first = axis == 1 ? 2 : 1
        let cells = Plane(height: shape[first], width: shape[first + 1], classes: chosen(numbers, shape))
        guard let picture else { return cells }
        let at = declared.placement(height: picture[0], width: picture[1])
        let rows = nearest(picture[0], at.down, at.top, cells.height, size[0])
        let columns = nearest(picture[1], at.across, at.left, cells.width, size[1])
        var classes = [UInt8](repeating: Segments.unseen, count: picture[0] * picture[1])
        for (y, row) in rows.enumerated() {
            guard let row else { continue }
            for (x, column) in columns.enumerated() {
                guard let column else { continue }
                classes[y * picture[1] + x] = cells.classes[row * cells.width + column]
            }
        }
        return Plane(height: picture[0], width: picture[1], classes: classes)
    }

    /// The class that most cells have, of equals the first.
    static func most(_ classes: [UInt8]) -> Int {
        var counts = [Float](repeating: 0, count: 256)
        for index in classes { counts[Int(index)] += 1 }
        return Classes.best(counts, 1)[0]
    }

    /// Of each cell: of equals the first, and none above 254.
    private func chosen(_ numbers: [Float], _ shape: [Int]) -> [UInt8] {
        guard let axis else {
            return numbers.map { UInt8(max(0, min(254, ($0.isNaN ? 0 : $0).rounded(.toNearestOrEven)))) }
        }
        let channels = shape[axis]
        if channels == 1 { return numbers.map { $0 > (single == "probability" ? 0.5 : 0) ? 1 : 0 } }
        let count = numbers.count / channels
        return (0..<count).map { cell in
            let (begin, step) = axis == 1 ? (cell, count) : (cell * channels, 1)
            var best = 0
            for i in 1..<channels where numbers[begin + i * step] > numbers[begin + best * step] { best = i }
            return UInt8(min(254, best))
        }
    }

    /// Of each pixel of an axis the cell that its middle lies in; nil: none.
    private func nearest(_ pixels: Int, _ scale: Double, _ begin: Int, _ cells: Int, _ size: Int) -> [Int?] {
        (0..<pixels).map { pixel in
            let place = (Double(pixel) + 0.5) * scale - Double(begin)
            let cell = (place * Double(cells) / Double(size)).rounded(.down)
            return cell >= 0 && cell < Double(cells) ? Int(cell) : nil
        }
    }
}
