package ai.edgecompress.model;

import ai.edgecompress.processing.Boxes;
import ai.edgecompress.processing.Colour;
import ai.edgecompress.processing.Golden;
import ai.edgecompress.processing.Json;
import ai.edgecompress.processing.Layout;
import ai.edgecompress.processing.Preprocess;
import ai.edgecompress.processing.Segments;
import ai.edgecompress.processing.Spectrogram;
import java.nio.ByteBuffer;
import java.nio.charset.Charset;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** What is compiled in of the model: read once out of ModelSpec's text, the only place where it is kept. */
final class Spec {
    static final Charset UTF_8 = Charset.forName("UTF-8");

    /** Every fact by its key, as in model_card.json. */
    final Map<String, Object> facts;

    final String slug;
    final String main;
    final List<Map<String, Object>> files;
    final List<Tensor> inputs;
    final List<Tensor> outputs;
    final Map<String, Object> golden;
    final Map<String, Object> postprocess;
    /** Of the engine's session: those that the model was verified with. */
    final Map<String, Object> settings;

    Spec(String json) {
        facts = Facts.table(Json.read(json));
        Map<String, Object> model = Facts.table(facts.get("model"));
        slug = (String) facts.get("slug");
        main = (String) model.get("main");
        files = Facts.tables(model.get("files"));
        inputs = tensors("inputs");
        outputs = tensors("outputs");
        golden = Facts.table(facts.get("golden"));
        postprocess = Facts.table(facts.get("postprocess"));
        Map<String, Object> chosen = Facts.table(Facts.table(facts.get("runtime")).get("settings"));
        settings = chosen == null ? Collections.emptyMap() : chosen;
    }

    private List<Tensor> tensors(String side) {
        List<Tensor> found = new ArrayList<>();
        for (Map<String, Object> tensor : Facts.tables(facts.get(side))) {
            found.add(new Tensor(tensor));
        }
        return Collections.unmodifiableList(found);
    }

    /** The place of an input or output in its list. Throws IllegalArgumentException for a name that is not there. */
    static int at(List<Tensor> tensors, Object name) {
        for (int i = 0; i < tensors.size(); i++) {
            if (tensors.get(i).name.equals(name)) {
                return i;
            }
        }
        throw new IllegalArgumentException("the model has no '" + name + "'");
    }

    /** The input that raw data becomes. */
    Tensor processed() {
        Object name = Facts.table(facts.get("preprocess")).get("input");
        return "".equals(name) ? inputs.get(0) : inputs.get(at(inputs, name));
    }

    /** How raw data becomes it. */
    Preprocess preprocess() {
        Map<String, Object> how = Facts.table(facts.get("preprocess"));
        Preprocess found = new Preprocess()
                .resize(Facts.whole(how.get("resize")))
                .fit(how.containsKey("fit") ? (String) how.get("fit") : "shorter", Facts.whole(how.get("bars")))
                .crop(Facts.whole(how.get("crop")))
                .colour(Colour.valueOf((String) how.get("colour")))
                .scale(((Number) how.get("scale")).doubleValue())
                .mean(Facts.doubles(how.get("mean")))
                .std(Facts.doubles(how.get("std")));
        if (!"".equals(how.get("layout"))) {
            found.layout(Layout.valueOf((String) how.get("layout")));
        }
        Map<String, Object> audio = Facts.table(how.get("spectrogram"));
        return audio == null ? found : found.spectrogram(spectrogram(audio));
    }

    private static Spectrogram spectrogram(Map<String, Object> how) {
        return new Spectrogram(
                Facts.whole(how.get("rate")),
                Facts.whole(how.get("frame")),
                Facts.whole(how.get("hop")),
                Facts.whole(how.get("fft")),
                Facts.whole(how.get("bins")),
                ((Number) how.get("floor")).doubleValue(),
                Facts.whole(how.get("length")));
    }

    /** Whether raw data is a picture: bytes [height][width], or [height][width][1 or 3]. */
    boolean picture() {
        Map<String, Object> raw = Facts.table(golden.get("raw"));
        Map<String, Object> how = Facts.table(facts.get("preprocess"));
        if (raw == null || how == null || how.get("spectrogram") != null || !"uint8".equals(raw.get("dtype"))) {
            return false;
        }
        int axes = Facts.numbers(raw.get("shape")).size();
        return axes == 2 || (axes == 3 && (channels() == 1 || channels() == 3));
    }

    /** Of the golden picture: 1 is grey. */
    int channels() {
        List<Number> shape = Facts.numbers(Facts.table(golden.get("raw")).get("shape"));
        return shape.size() == 2 ? 1 : shape.get(2).intValue();
    }

    /** Whether the model's answer is scores of classes. */
    boolean classifies() {
        return "classify".equals(postprocess.get("task"));
    }

    /** Whether the model's answer is boxes. */
    boolean detects() {
        return "detect".equals(postprocess.get("task"));
    }

    /** How boxes are read out of the outputs. */
    Boxes boxes() {
        Map<String, Object> how = Facts.table(postprocess.get("detect"));
        int background = how.get("background") == null ? -1 : Facts.whole(how.get("background"));
        double least = ((Number) how.get("least")).doubleValue();
        double overlap = ((Number) how.get("overlap")).doubleValue();
        Boxes found = new Boxes(columns(how.get("boxes")), columns(how.get("scores")), columns(how.get("classes")))
                .scored((String) how.get("kind"), background, (Boolean) how.get("anything"))
                .written((String) how.get("format"), "shares".equals(how.get("unit")), (Boolean) how.get("listed"))
                .limits(least, overlap)
                .points(columns(how.get("points")), how.get("point") == null ? 2 : Facts.whole(how.get("point")));
        if (how.get("size") != null) {
            List<Number> size = Facts.numbers(how.get("size"));
            found.input(size.get(0).intValue(), size.get(1).intValue());
        }
        return found;
    }

    /** Whether the model's answer is the class of each pixel. */
    boolean tellsPixels() {
        return "segment".equals(postprocess.get("task"));
    }

    /** How the class of each pixel is read out of the output. */
    Segments segments() {
        Map<String, Object> how = Facts.table(postprocess.get("segment"));
        List<Number> size = Facts.numbers(how.get("size"));
        int axis = Facts.whole(how.get("axis"));
        return new Segments(axis, (String) how.get("single"), size.get(0).intValue(), size.get(1).intValue());
    }

    private Boxes.Columns columns(Object told) {
        Map<String, Object> one = Facts.table(told);
        return one == null
                ? null
                : new Boxes.Columns(
                        at(outputs, one.get("name")),
                        Facts.whole(one.get("axis")),
                        Facts.whole(one.get("first")),
                        Facts.whole(one.get("end")));
    }

    /** The shape of each output. */
    int[][] shapes() {
        int[][] found = new int[outputs.size()][];
        for (int i = 0; i < found.length; i++) {
            long[] shape = outputs.get(i).shape;
            found[i] = new int[shape.length];
            for (int axis = 0; axis < shape.length; axis++) {
                found[i][axis] = Math.toIntExact(shape[axis]);
            }
        }
        return found;
    }

    /** The output that holds the scores, or the classes of pixels. */
    int scores() {
        return at(outputs, postprocess.get("output"));
    }

    /** One sha256 for all of the model's files: over "path, NUL, sha256, newline" of each, in order. */
    String digest() {
        StringBuilder lines = new StringBuilder();
        for (Map<String, Object> file : files) {
            lines.append(file.get("path")).append('\0').append(file.get("sha256")).append('\n');
        }
        return Golden.sha256(ByteBuffer.wrap(lines.toString().getBytes(UTF_8)));
    }
}
