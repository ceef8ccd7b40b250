package ai.edgecompress.processing;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;

/** What a detector finds: boxes, read out of its outputs as a card's `postprocess.detect` says. */
public final class Boxes {
    /** Channels `first` to `end` of an output: [1, places, channels], or with `axis` 1 [1, channels, places]. */
    public static final class Columns {
        final int output;
        final int axis;
        final int first;
        final int end;

        /** `output`: its place in the list of outputs. */
        public Columns(int output, int axis, int first, int end) {
            this.output = output;
            this.axis = axis;
            this.first = first;
            this.end = end;
        }
    }

    /** One thing that was found: corners x1, y1, x2, y2, and key points x, y, and how certain each is. */
    public static final class Box {
        /** The number of its class. */
        public final int index;
        /** How probable it is. */
        public final double score;
        /** Its corners. */
        public final double[] corners;
        /** Its key points: none, where the model tells none. */
        public final double[][] points;

        Box(int index, double score, double[] corners, double[][] points) {
            this.index = index;
            this.score = score;
            this.corners = corners;
            this.points = points;
        }
    }

    private static final int TRIED = 1000;
    private static final int FOUND = 100;
    private static final int NONE = -1;
    private static final Comparator<Box> BEST_FIRST = new Comparator<Box>() {
        @Override
        public int compare(Box one, Box other) {
            return Double.compare(other.score, one.score);
        }
    };

    private final Columns boxes;
    private final Columns scores;
    private final Columns classes;
    private Columns points;
    private int point = 2;
    private String kind = "shares";
    private int background = NONE;
    private boolean anything;
    private boolean listed;
    private String format = "xyxy";
    private boolean shares;
    private double least = 0.5;
    private double overlap = 0.5;
    private int[] size;

    /** Where they are; `classes` is null where the scores tell the class. */
    public Boxes(Columns boxes, Columns scores, Columns classes) {
        this.boxes = boxes;
        this.scores = scores;
        this.classes = classes;
    }

    /** What scores are, which of them is of the background (-1: none), and whether the first is of anything at all. */
    public Boxes scored(String kind, int background, boolean anything) {
        this.kind = kind;
        this.background = background;
        this.anything = anything;
        return this;
    }

    /** How boxes are written; in shares of the input's sides or its pixels; whether they are a list without overlaps. */
    public Boxes written(String format, boolean shares, boolean listed) {
        this.format = format;
        this.shares = shares;
        this.listed = listed;
        return this;
    }

    /** Where the key points of each box are (null: it has none), and how many numbers one has. */
    public Boxes points(Columns columns, int numbers) {
        points = columns;
        point = numbers;
        return this;
    }

    /** The score from which on something is found, and the overlap beyond which two boxes are of one thing. */
    public Boxes limits(double least, double overlap) {
        this.least = least;
        this.overlap = overlap;
        return this;
    }

    /** Height and width of the input. */
    public Boxes input(int height, int width) {
        size = new int[] {height, width};
        return this;
    }

    /**
     * What is found, the best first, in real numbers of all outputs. `picture` is {height, width} of the picture that
     * became the input by `declared`, whose pixels corners and points are in; null: those of the input.
     */
    public List<Box> of(float[][] outputs, int[][] shapes, int[] picture, Preprocess declared) {
        Reader sure = new Reader(scores, outputs, shapes);
        Reader places = new Reader(boxes, outputs, shapes);
        Reader told = classes == null ? null : new Reader(classes, outputs, shapes);
        Reader marks = points == null ? null : new Reader(points, outputs, shapes);
        List<Box> found = new ArrayList<>();
        for (int place = 0; place < sure.places; place++) {
            double[] probable = probable(sure.row(place));
            for (int i = 0; i < probable.length; i++) {
                probable[i] = (float) probable[i]; // what differs by a last digit is a tie
            }
            int best = 0;
            for (int i = 1; i < probable.length; i++) {
                best = probable[i] > probable[best] ? i : best;
            }
            if (probable[best] >= least) {
                int index = told == null ? best : (int) Math.rint(told.row(place)[0]);
                double[][] own = marks == null ? new double[0][] : split(marks.row(place));
                found.add(new Box(index, probable[best], corners(places.row(place)), own));
            }
        }
        Collections.sort(found, BEST_FIRST); // it is stable: of equals the first
        found = found.subList(0, Math.min(TRIED, found.size()));
        found = listed ? found : distinct(found);
        List<Box> placed = new ArrayList<>();
        for (Box each : found.subList(0, Math.min(FOUND, found.size()))) {
            placed.add(inPicture(each, picture, declared));
        }
        return placed;
    }

    /** How probable each class is; the background is none. */
    private double[] probable(double[] row) {
        double[] sure = row.clone();
        if (kind.equals("logits") || kind.equals("log-probabilities")) {
            double largest = Double.NEGATIVE_INFINITY;
            for (double x : row) {
                largest = Math.max(largest, x);
            }
            double sum = 0;
            for (int i = 0; i < row.length; i++) {
                sure[i] = Math.exp(row[i] - largest);
                sum += sure[i];
            }
            for (int i = 0; i < row.length; i++) {
                sure[i] /= sum;
            }
        } else {
            for (int i = 0; i < row.length; i++) {
                double x = row[i];
                x = kind.equals("logit") ? 1 / (1 + Math.exp(-Math.max(-700, Math.min(700, x)))) : x;
                sure[i] = Math.max(0, Math.min(1, x));
            }
        }
        if (anything) {
            double[] each = Arrays.copyOfRange(sure, 1, sure.length);
            for (int i = 0; i < each.length; i++) {
                each[i] *= sure[0];
            }
            return each;
        }
        if (background == NONE) {
            return sure;
        }
        double[] each = new double[sure.length - 1];
        for (int i = 0; i < each.length; i++) {
            each[i] = sure[i < background ? i : i + 1];
        }
        return each;
    }

    private double[] corners(double[] row) {
        if (format.equals("xyxy") || format.equals("yxyx")) {
            return row;
        }
        boolean middle = format.equals("cxcywh");
        double x = middle ? row[0] - row[2] / 2 : row[0];
        double y = middle ? row[1] - row[3] / 2 : row[1];
        return new double[] {x, y, x + row[2], y + row[3]};
    }

    /** Numbers one behind the other as key points. */
    private double[][] split(double[] row) {
        double[][] found = new double[row.length / point][];
        for (int i = 0; i < found.length; i++) {
            found[i] = Arrays.copyOfRange(row, i * point, (i + 1) * point);
        }
        return found;
    }

    /** Without those that overlap a better one of their class. */
    private List<Box> distinct(List<Box> found) {
        List<Box> kept = new ArrayList<>();
        for (Box each : found) {
            boolean free = true;
            for (int i = 0; i < kept.size() && free; i++) {
                Box better = kept.get(i);
                free = better.index != each.index || !(shared(better.corners, each.corners) > overlap);
            }
            if (free) {
                kept.add(each);
            }
        }
        return kept;
    }

    /** Intersection over union of two boxes. */
    static double shared(double[] one, double[] other) {
        double width = Math.max(0, Math.min(one[2], other[2]) - Math.max(one[0], other[0]));
        double height = Math.max(0, Math.min(one[3], other[3]) - Math.max(one[1], other[1]));
        double both = width * height;
        double whole = area(one) + area(other) - both;
        return both / (whole > 0 ? whole : 1);
    }

    private static double area(double[] box) {
        return Math.max(0, box[2] - box[0]) * Math.max(0, box[3] - box[1]);
    }

    /** With corners that end at the picture's sides, and points that do not. */
    private Box inPicture(Box box, int[] picture, Preprocess declared) {
        Preprocess.Placement at =
                picture == null || declared == null ? null : declared.placement(picture[0], picture[1]);
        int[] whole = picture == null ? size : picture;
        double[] corners = new double[4];
        for (int i = 0; i < 4; i += 2) {
            double[] place = place(box.corners[i], box.corners[i + 1], at);
            corners[i] = whole == null ? place[0] : Math.max(0, Math.min(whole[1], place[0]));
            corners[i + 1] = whole == null ? place[1] : Math.max(0, Math.min(whole[0], place[1]));
        }
        double[][] marks = new double[box.points.length][];
        for (int i = 0; i < marks.length; i++) {
            marks[i] = box.points[i].clone();
            System.arraycopy(place(marks[i][0], marks[i][1], at), 0, marks[i], 0, 2);
        }
        return new Box(box.index, box.score, corners, marks);
    }

    /** Two numbers, as they are written, as x and y in the picture. */
    private double[] place(double one, double other, Preprocess.Placement at) {
        boolean turned = format.equals("yxyx");
        double x = turned ? other : one;
        double y = turned ? one : other;
        if (shares && size != null) {
            x *= size[1];
            y *= size[0];
        }
        return at == null ? new double[] {x, y} : new double[] {(x + at.left) / at.across, (y + at.top) / at.down};
    }

    /** The rows of some channels; what is no number is 0. */
    private static final class Reader {
        final int places;
        private final float[] numbers;
        private final Columns columns;
        private final int channels;
        private final boolean channelsFirst;

        Reader(Columns columns, float[][] outputs, int[][] shapes) {
            int[] shape = shapes[columns.output];
            this.columns = columns;
            numbers = outputs[columns.output];
            channelsFirst = columns.axis == 1 && shape.length == 3;
            places = channelsFirst ? shape[2] : shape[1];
            channels = shape.length == 3 ? shape[channelsFirst ? 1 : 2] : 1;
        }

        double[] row(int place) {
            double[] found = new double[columns.end - columns.first];
            for (int i = 0; i < found.length; i++) {
                int channel = columns.first + i;
                float x = numbers[channelsFirst ? channel * places + place : place * channels + channel];
                found[i] = Float.isNaN(x) || Float.isInfinite(x) ? 0 : x;
            }
            return found;
        }
    }
}
