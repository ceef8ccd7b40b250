import Foundation

/// What a detector finds: boxes, read out of its outputs as the card's `postprocess.detect` says.
struct Boxes {
    /// Channels of an output: [1, places, channels], or with `axis` 1 [1, channels, places].
    struct Columns {
        let output: Int  // its place in the list of outputs
        let axis: Int
        let first: Int
        let end: Int
    }

    /// One thing that was found: corners x1, y1, x2, y2, and key points x, y, and how certain each is.
    struct Box {
        let index: Int
        let score: Double
        let corners: [Double]
        let points: [[Double]]
    }

    static let tried = 1000  // of the places where something is found, the best
    static let found = 100  // boxes of a picture

    let boxes: Columns
    let scores: Columns
    let classes: Columns?
    let points: Columns?  // the key points of each box
    let point: Int  // numbers of one
    let kind: String
    let background: Int?
    let anything: Bool
    let listed: Bool
    let format: String
    let shares: Bool  // of the input's sides, not its pixels
    let least: Double
    let overlap: Double
    let size: [Int]?  // height and width of the input

    /// What is found, the best first, in real numbers of all outputs. Corners and points are in pixels of the picture,
    /// [height, width], that became the input by `declared`; without one in those of the input.
    func of(_ outputs: [[Float]], _ shapes: [[Int]], picture: [Int]?, declared: Preprocess?) -> [Box] {
        let sure = Reader(scores, outputs, shapes)
        let places = Reader(boxes, outputs, shapes)
        let told = classes.map { Reader($0, outputs, shapes) }
        let marks = points.map { Reader($0, outputs, shapes) }
        var all: [Box] = []
        for place in 0..<sure.places {
            let each = probable(sure.row(place)).map { Double(Float($0)) }  // what differs by a last digit is a tie
            var best = 0
            for i in each.indices where each[i] > each[best] { best = i }
            guard each[best] >= least else { continue }
            let index = told.map { Int($0.row(place)[0].rounded(.toNearestOrEven)) } ?? best
            let own = marks.map { split($0.row(place)) } ?? []
            all.append(Box(index: index, score: each[best], corners: corners(places.row(place)), points: own))
        }
        let order = all.indices.sorted { a, b in all[a].score == all[b].score ? a < b : all[a].score > all[b].score }
        let ranked = order.prefix(Boxes.tried).map { all[$0] }
        return (listed ? ranked : distinct(ranked)).prefix(Boxes.found).map { inPicture($0, picture, declared) }
    }

    /// How probable each class is; the background is none.
    private func probable(_ row: [Double]) -> [Double] {
        var sure = row
        if kind == "logits" || kind == "log-probabilities" {
            let largest = row.max() ?? 0
            sure = row.map { exp($0 - largest) }
            let sum = sure.reduce(0, +)
            sure = sure.map { $0 / sum }
        } else {
            if kind == "logit" { sure = row.map { 1 / (1 + exp(-max(-700, min(700, $0)))) } }
            sure = sure.map { max(0, min(1, $0)) }
        }
        if anything { return sure.dropFirst().map { $0 * sure[0] } }
        if let background { sure.remove(at: background) }
        return sure
    }

    private func corners(_ row: [Double]) -> [Double] {
        if format == "xyxy" || format == "yxyx" { return row }
        let middle = format == "cxcywh"
        let x = middle ? row[0] - row[2] / 2 : row[0]
        let y = middle ? row[1] - row[3] / 2 : row[1]
        return [x, y, x + row[2], y + row[3]]
    }

    /// Numbers one behind the other as key points.
    private func split(_ row: [Double]) -> [[Double]] {
        stride(from: 0, to: row.count, by: point).map { Array(row[$0..<$0 + point]) }
    }

    /// Without those that overlap a better one of their class.
    private func distinct(_ ranked: [Box]) -> [Box] {
        var kept: [Box] = []
        for box in ranked
        where !kept.contains(where: { $0.index == box.index && Boxes.shared($0.corners, box.corners) > overlap }) {
            kept.append(box)
        }
        return kept
    }

    /// Intersection over union of two boxes.
    static func shared(_ one: [Double], _ other: [Double]) -> Double {
        let width = max(0, min(one[2], other[2]) - max(one[0], other[0]))
        let height = max(0, min(one[3], other[3]) - max(one[1], other[1]))
        let both = width * height
        let whole = area(one) + area(other) - both
        return both / (whole > 0 ? whole : 1)
    }

    private static func area(_ box: [Double]) -> Double {
        max(0, box[2] - box[0]) * max(0, box[3] - box[1])
    }

    /// With corners that end at the picture's sides, and points that do not.
    private func inPicture(_ box: Box, _ picture: [Int]?, _ declared: Preprocess?) -> Box {
        let at = picture.flatMap { sides in declared.map { $0.placement(height: sides[0], width: sides[1]) } }
        var corners = place(box.corners[0], box.corners[1], at) + place(box.corners[2], box.corners[3], at)
        if let whole = picture ?? size {
            for i in 0..<4 { corners[i] = max(0, min(Double(whole[1 - i % 2]), corners[i])) }  // x ends at the width
        }
        let points = box.points.map { place($0[0], $0[1], at) + $0[2...] }
        return Box(index: box.index, score: box.score, corners: corners, points: points)
    }

    /// Two numbers, as they are written, as x and y in the picture.
    private func place(_ one: Double, _ other: Double, _ at: Preprocess.Placement?) -> [Double] {
        var (x, y) = format == "yxyx" ? (other, one) : (one, other)
        if shares, let size { (x, y) = (x * Double(size[1]), y * Double(size[0])) }
        guard let at else { return [x, y] }
        return [(x + Double(at.left)) / at.across, (y + Double(at.top)) / at.down]
    }

    /// The rows of some channels; what is no number is 0.
    private struct Reader {
        let places: Int
        private let numbers: [Float]
        private let columns: Columns
        private let channels: Int
        private let channelsFirst: Bool

        init(_ columns: Columns, _ outputs: [[Float]], _ shapes: [[Int]]) {
            let shape = shapes[columns.output]
            self.columns = columns
            numbers = outputs[columns.output]
            channelsFirst = columns.axis == 1 && shape.count == 3
            places = channelsFirst ? shape[2] : shape[1]
            channels = shape.count == 3 ? shape[channelsFirst ? 1 : 2] : 1
        }

        func row(_ place: Int) -> [Double] {
            (columns.first..<columns.end).map { channel in
                let number = numbers[channelsFirst ? channel * places + place : place * channels + channel]
                return number.isFinite ? Double(number) : 0
            }
        }
    }
}
