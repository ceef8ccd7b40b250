import ai.edgecompress.processing.Boxes;
import ai.edgecompress.processing.Colour;
import ai.edgecompress.processing.Golden;
import ai.edgecompress.processing.Image;
import ai.edgecompress.processing.Json;
import ai.edgecompress.processing.Layout;
import ai.edgecompress.processing.Preprocess;
import ai.edgecompress.processing.Quantize;
import ai.edgecompress.processing.Resize;
import ai.edgecompress.processing.Segments;
import ai.edgecompress.processing.Softmax;
import ai.edgecompress.processing.Spectrogram;
import ai.edgecompress.processing.TopK;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** Runs every case of FOLDER/cases.json in one process: each reads FOLDER/NAME.in and writes FOLDER/NAME.java. */
public final class Driver {
    private final Path folder;

    private Driver(Path folder) {
        this.folder = folder;
    }

    public static void main(String[] arguments) throws IOException {
        Driver driver = new Driver(Paths.get(arguments[0]));
        byte[] text = Files.readAllBytes(driver.folder.resolve("cases.json"));
        for (Object one : (List<?>) Json.read(new String(text, StandardCharsets.UTF_8))) {
            Map<?, ?> given = (Map<?, ?>) one;
            byte[] found;
            try {
                found = driver.answer(given);
            } catch (IllegalArgumentException refused) {
                found = ("refused: " + refused.getMessage()).getBytes(StandardCharsets.UTF_8);
            }
            Files.write(driver.folder.resolve(given.get("name") + ".java"), found);
        }
    }

    private byte[] answer(Map<?, ?> given) throws IOException {
        byte[] in = Files.readAllBytes(folder.resolve(given.get("name") + ".in"));
        String dtype = (String) given.get("dtype");
        switch ((String) given.get("do")) {
            case "preprocess":
                return stored(preprocessed(given, in), given);
            case "boxes":
                return text(words(boxes(given, Golden.floats(in, "float32"))));
            case "regions":
                return regions(given, Golden.floats(in, "float32"));
            case "resize":
                return Resize.to(picture(given, in), whole(given, "height"), whole(given, "width")).bytes;
            case "real":
                return Golden.bytes(
                        dtype.equals("int8")
                                ? Quantize.realOfInt8(in, real(given, "scale"), whole(given, "zero_point"))
                                : Quantize.realOfUint8(in, real(given, "scale"), whole(given, "zero_point")));
            case "quantize":
                return stored(Golden.floats(in, dtype), given);
            case "softmax":
                return Golden.bytes(Softmax.of(Golden.floats(in, dtype)));
            case "top":
                return text(Json.write(longs(TopK.of(Golden.floats(in, dtype), whole(given, "k")))));
            case "numbers":
                return text(words(Golden.numbers(in, dtype)));
            case "rms":
                return text(words(errors(Golden.floats(in, dtype))));
            case "sha256":
                return text(Golden.sha256(in));
            default:
                return text(Json.write(Json.read(new String(in, StandardCharsets.UTF_8))));
        }
    }

    private static float[] preprocessed(Map<?, ?> given, byte[] in) {
        String dtype = (String) given.get("dtype");
        Preprocess declared = declared((Map<?, ?>) given.get("declared"));
        if (dtype.equals("uint8")) {
            return declared.of(picture(given, in));
        }
        return dtype.equals("int16") ? declared.of(Golden.shorts(in)) : declared.of(Golden.floats(in, dtype));
    }

    private static Preprocess declared(Map<?, ?> card) {
        Preprocess found = new Preprocess().scale(real(card, "scale"));
        found.mean(reals(card, "mean")).std(reals(card, "std")).colour(Colour.valueOf((String) card.get("colour")));
        if (card.get("resize") != null) {
            found.resize(whole(card, "resize")).fit((String) card.get("fit"), whole(card, "bars"));
        }
        if (card.get("crop") != null) {
            found.crop(whole(card, "crop"));
        }
        if (!card.get("layout").equals("")) {
            found.layout(Layout.valueOf((String) card.get("layout")));
        }
        Map<?, ?> audio = (Map<?, ?>) card.get("spectrogram");
        return audio == null ? found : found.spectrogram(spectrogram(audio));
    }

    private static Spectrogram spectrogram(Map<?, ?> card) {
        int bins = card.get("bins") == null ? 0 : whole(card, "bins");
        return new Spectrogram(
                whole(card, "rate"),
                whole(card, "frame"),
                whole(card, "hop"),
                whole(card, "fft"),
                bins,
                real(card, "floor"),
                whole(card, "length"));
    }

    /** Class, score, corners and points of each box; the outputs lie one behind the other. */
    private static double[] boxes(Map<?, ?> given, float[] in) {
        Map<?, ?> how = (Map<?, ?>) given.get("how");
        List<Object> names = new ArrayList<>();
        List<?> told = (List<?>) given.get("outputs");
        float[][] outputs = new float[told.size()][];
        int[][] shapes = new int[told.size()][];
        int begin = 0;
        for (int i = 0; i < outputs.length; i++) {
            Map<?, ?> one = (Map<?, ?>) told.get(i);
            names.add(one.get("name"));
            shapes[i] = wholes(one, "shape");
            int count = 1;
            for (int length : shapes[i]) {
                count *= length;
            }
            outputs[i] = Arrays.copyOfRange(in, begin, begin += count);
        }
        int background = how.get("background") == null ? -1 : whole(how, "background");
        Boxes reader = new Boxes(columns(how, "boxes", names), columns(how, "scores", names), columns(how, "classes", names))
                .scored((String) how.get("kind"), background, (Boolean) how.get("anything"))
                .written((String) how.get("format"), how.get("unit").equals("shares"), (Boolean) how.get("listed"))
                .limits(real(how, "least"), real(how, "overlap"))
                .points(columns(how, "points", names), whole(how, "point"));
        if (how.get("size") != null) {
            reader.input(wholes(how, "size")[0], wholes(how, "size")[1]);
        }
        int[] picture = given.get("picture") == null ? null : wholes(given, "picture");
        Preprocess declared = picture == null ? null : declared((Map<?, ?>) given.get("declared"));
        List<Boxes.Box> found = reader.of(outputs, shapes, picture, declared);
        List<Double> flat = new ArrayList<>();
        for (Boxes.Box box : found) {
            flat.add((double) box.index);
            flat.add(box.score);
            for (double x : box.corners) {
                flat.add(x);
            }
            for (double[] point : box.points) {
                for (double x : point) {
                    flat.add(x);
                }
            }
        }
        double[] all = new double[flat.size()];
        for (int i = 0; i < all.length; i++) {
            all[i] = flat.get(i);
        }
        return all;
    }

    /** The class of each pixel. */
    private static byte[] regions(Map<?, ?> given, float[] in) {
        Map<?, ?> how = (Map<?, ?>) given.get("how");
        int axis = how.get("axis") == null ? 0 : whole(how, "axis");
        int[] size = wholes(how, "size");
        Segments reader = new Segments(axis, (String) how.get("single"), size[0], size[1]);
        int[] picture = given.get("picture") == null ? null : wholes(given, "picture");
        return reader.of(in, wholes(given, "shape"), picture, declared((Map<?, ?>) given.get("declared")));
    }

    private static Boxes.Columns columns(Map<?, ?> how, String key, List<Object> names) {
        Map<?, ?> one = (Map<?, ?>) how.get(key);
        return one == null
                ? null
                : new Boxes.Columns(
                        names.indexOf(one.get("name")), whole(one, "axis"), whole(one, "first"), whole(one, "end"));
    }

    /** In the dtype that the case asks for: int8, uint8, or as it is. */
    private static byte[] stored(float[] x, Map<?, ?> given) {
        if (given.get("as").equals("float32")) {
            return Golden.bytes(x);
        }
        double scale = real(given, "scale");
        int zeroPoint = whole(given, "zero_point");
        return given.get("as").equals("int8") ? Quantize.int8(x, scale, zeroPoint) : Quantize.uint8(x, scale, zeroPoint);
    }

    private static Image picture(Map<?, ?> given, byte[] in) {
        List<?> shape = (List<?>) given.get("shape");
        int channels = shape.size() == 2 ? 1 : ((Number) shape.get(2)).intValue();
        return new Image(in, ((Number) shape.get(0)).intValue(), ((Number) shape.get(1)).intValue(), channels);
    }

    /** The first half is wanted, the second half found. */
    private static double[] errors(float[] x) {
        float[] wanted = java.util.Arrays.copyOf(x, x.length / 2);
        float[] found = java.util.Arrays.copyOfRange(x, x.length / 2, x.length);
        return new double[] {Golden.relativeRms(wanted, found), Golden.largestError(wanted, found)};
    }

    private static long[] longs(int[] x) {
        long[] found = new long[x.length];
        for (int i = 0; i < x.length; i++) {
            found[i] = x[i];
        }
        return found;
    }

    private static String words(double[] x) {
        StringBuilder found = new StringBuilder();
        for (double each : x) {
            found.append(each).append('\n');
        }
        return found.toString();
    }

    private static byte[] text(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    private static int whole(Map<?, ?> table, String key) {
        return ((Number) table.get(key)).intValue();
    }

    private static double real(Map<?, ?> table, String key) {
        return ((Number) table.get(key)).doubleValue();
    }

    private static int[] wholes(Map<?, ?> table, String key) {
        double[] numbers = reals(table, key);
        int[] found = new int[numbers.length];
        for (int i = 0; i < found.length; i++) {
            found[i] = (int) numbers[i];
        }
        return found;
    }

    private static double[] reals(Map<?, ?> table, String key) {
        List<?> list = (List<?>) table.get(key);
        double[] found = new double[list.size()];
        for (int i = 0; i < found.length; i++) {
            found[i] = ((Number) list.get(i)).doubleValue();
        }
        return found;
    }
}
