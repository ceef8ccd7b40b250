package ai.edgecompress.model;

import ai.edgecompress.processing.Boxes;
import ai.edgecompress.processing.Golden;
import ai.edgecompress.processing.Image;
import ai.edgecompress.processing.Json;
import ai.edgecompress.processing.Segments;
import ai.edgecompress.processing.TopK;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** The self-test's steps: golden files against what is compiled in, processing and inference, where that ran. */
final class Trials {
    private static final String CARD = "model_card.json";

    private final Spec spec;
    private final ModelFiles files;
    private final Engine engine;

    Trials(Spec spec, ModelFiles files, Engine engine) {
        this.spec = spec;
        this.files = files;
        this.engine = engine;
    }

    SelfTest run() {
        SelfTest test = new SelfTest();
        test.add("files", this::files);
        test.add("processing", this::processing);
        test.add("inference", this::inference);
        test.add("labels", this::labels);
        if (compiled() != null) {
            test.add("accelerator", this::accelerator);
        }
        return test;
    }

    // ------------------------------------------------------------------ accelerator

    private Map<String, Object> compiled() {
        return Facts.table(Facts.table(spec.facts.get("runtime")).get("compiled"));
    }

    private String accelerator() throws SelfTest.Wrong {
        String ran = compiled().get("accelerator") + " of " + compiled().get("chip");
        if (engine.left() == null) {
            return "it ran on the " + ran;
        }
        String told = "it ran on the CPU, not on the " + ran + ": " + engine.left();
        if (!ModelSpec.CPU_ALLOWED) {
            throw new SelfTest.Wrong(told);
        }
        return told;
    }

    // ------------------------------------------------------------------ files

    private String files() throws IOException, SelfTest.Wrong {
        List<Map<String, Object>> all = new ArrayList<>(goldenFiles());
        for (Map<String, Object> file : all) {
            same((String) file.get("file"), Golden.sha256(files.read((String) file.get("file"))), file.get("sha256"));
        }
        for (Map<String, Object> file : spec.files) {
            same((String) file.get("path"), Golden.sha256(files.map((String) file.get("path"))), file.get("sha256"));
        }
        Map<String, Object> labels = Facts.table(spec.facts.get("labels"));
        same("labels.json", Golden.sha256(files.read("labels.json")), labels.get("sha256"));
        for (String key : spec.facts.keySet()) {
            if (!key.equals("preprocess")) {
                agree(key);
            }
        }
        return all.size() + spec.files.size() + 1 + " files are those that were packaged";
    }

    private List<Map<String, Object>> goldenFiles() {
        List<Map<String, Object>> found = new ArrayList<>();
        if (spec.golden.get("raw") != null) {
            found.add(Facts.table(spec.golden.get("raw")));
        }
        found.addAll(Facts.tables(spec.golden.get("inputs")));
        found.addAll(Facts.tables(spec.golden.get("outputs")));
        return found;
    }

    private static void same(String file, String found, Object wanted) throws SelfTest.Wrong {
        if (!found.equals(wanted)) {
            throw new SelfTest.Wrong(file + ": its bytes are not those that were packaged (sha256 differs)");
        }
    }

    /** The card beside the model says what is compiled in. */
    private void agree(String key) throws IOException, SelfTest.Wrong {
        Map<String, Object> card = Facts.table(Json.read(new String(files.read(CARD), Spec.UTF_8)));
        Object wanted = spec.facts.get(key);
        Object found = card.get(key);
        if (!card.containsKey(key) || !(wanted == null ? found == null : wanted.equals(found))) {
            throw new SelfTest.Wrong(CARD + ": '" + key + "' is not what is compiled in");
        }
    }

    // ------------------------------------------------------------------ processing

    private String processing() throws IOException, SelfTest.Wrong {
        agree("preprocess");
        Map<String, Object> raw = Facts.table(spec.golden.get("raw"));
        if (raw == null || spec.facts.get("preprocess") == null) {
            return "nothing to do: the model takes the data as it is";
        }
        Tensor input = spec.processed();
        byte[] wanted = files.read((String) golden("inputs", input.name).get("file"));
        float[] found = processed(raw);
        return input.quantized ? steps(input, wanted, found) : distance(input, wanted, found);
    }

    private String steps(Tensor input, byte[] wanted, float[] real) throws SelfTest.Wrong {
        byte[] found = new byte[wanted.length];
        input.encoded(real).get(found);
        double apart = Golden.largestError(Golden.floats(wanted, input.dtype), Golden.floats(found, input.dtype));
        return within(apart, allowed("int8"), "steps of the input's quantization");
    }

    private String distance(Tensor input, byte[] wanted, float[] found) throws SelfTest.Wrong {
        float[] numbers = input.real(wanted);
        double largest = Golden.largestError(numbers, new float[numbers.length]);
        double apart = Golden.largestError(numbers, found);
        return within(apart, allowed("float") * Math.max(1, largest), "from the golden input");
    }

    private double allowed(String kind) {
        return ((Number) Facts.table(spec.golden.get("processing")).get(kind)).doubleValue();
    }

    private static String within(double apart, double allowed, String of) throws SelfTest.Wrong {
        if (!(apart <= allowed)) {
            throw new SelfTest.Wrong(apart + " " + of + ", " + allowed + " is allowed");
        }
        return apart + " " + of;
    }

    // ------------------------------------------------------------------ inference

    private String inference() throws IOException, SelfTest.Wrong {
        float[][] answers = answers();
        double worst = 0;
        for (Map<String, Object> item : Facts.tables(spec.golden.get("outputs"))) {
            double apart = Golden.relativeRms(wanted(item), answers[Spec.at(spec.outputs, item.get("name"))]);
            double allowed = ((Number) spec.golden.get("tolerance")).doubleValue();
            within(apart, allowed, "relative RMS of '" + item.get("name") + "'");
            worst = Math.max(worst, apart);
        }
        return worst + " relative RMS from the golden answer";
    }

    private float[][] answers() throws IOException {
        ByteBuffer[] found = engine.run(inputs());
        float[][] real = new float[found.length][];
        for (int i = 0; i < real.length; i++) {
            real[i] = spec.outputs.get(i).real(found[i]);
        }
        return real;
    }

    /** The golden inputs as the engine takes them. */
    ByteBuffer[] inputs() throws IOException {
        ByteBuffer[] given = new ByteBuffer[spec.inputs.size()];
        for (int i = 0; i < given.length; i++) {
            Tensor input = spec.inputs.get(i);
            given[i] = input.filled(files.read((String) golden("inputs", input.name).get("file")));
        }
        return given;
    }

    /** A golden answer: real numbers, also where the model quantizes them. */
    private float[] wanted(Map<String, Object> item) throws IOException {
        return Golden.floats(files.read((String) item.get("file")), (String) item.get("dtype"));
    }

    private String labels() throws IOException, SelfTest.Wrong {
        if (spec.detects()) {
            return surest();
        }
        if (!spec.classifies() && !spec.tellsPixels()) {
            return "nothing to do: the model's answer is no scores of classes";
        }
        int scores = spec.scores();
        String name = spec.outputs.get(scores).name;
        String wanted = best(wanted(golden("outputs", name)));
        String found = best(answers()[scores]);
        if (!wanted.equals(found)) {
            throw new SelfTest.Wrong("the golden answer is '" + wanted + "', this one '" + found + "'");
        }
        return "'" + found + "'";
    }

    /** The label of the best class, or of the most frequent one of pixels. */
    private String best(float[] output) throws IOException {
        float[] scores = output;
        if (spec.tellsPixels()) {
            scores = Segments.shares(spec.segments().of(output, spec.shapes()[spec.scores()], null, null));
        }
        return label(TopK.of(scores, 1)[0]);
    }

    /** What a detector is surest of has the label that it had. */
    private String surest() throws IOException, SelfTest.Wrong {
        float[][] golden = new float[spec.outputs.size()][];
        for (int i = 0; i < golden.length; i++) {
            golden[i] = wanted(golden("outputs", spec.outputs.get(i).name));
        }
        String wanted = first(golden);
        String found = first(answers());
        if (!wanted.equals(found)) {
            throw new SelfTest.Wrong("the golden answer finds " + wanted + ", this one " + found);
        }
        return "it finds " + found;
    }

    private String first(float[][] outputs) throws IOException {
        List<Boxes.Box> found = spec.boxes().of(outputs, spec.shapes(), null, null);
        return found.isEmpty() ? "nothing" : "'" + label(found.get(0).index) + "'";
    }

    private String label(int index) throws IOException {
        return Labels.read(files).of(index);
    }

    private Map<String, Object> golden(String side, String name) {
        for (Map<String, Object> item : Facts.tables(spec.golden.get(side))) {
            if (name.equals(item.get("name"))) {
                return item;
            }
        }
        throw new IllegalArgumentException("no golden numbers of '" + name + "'");
    }

    // ------------------------------------------------------------------ raw data

    private float[] processed(Map<String, Object> raw) throws IOException {
        if (spec.picture()) {
            return spec.preprocess().of(image());
        }
        byte[] bytes = files.read((String) raw.get("file"));
        return "int16".equals(raw.get("dtype"))
                ? spec.preprocess().of(Golden.shorts(bytes))
                : spec.preprocess().of(Golden.floats(bytes, (String) raw.get("dtype")));
    }

    /** The golden picture. */
    Image image() throws IOException {
        Map<String, Object> raw = Facts.table(spec.golden.get("raw"));
        List<Number> shape = Facts.numbers(raw.get("shape"));
        byte[] bytes = files.read((String) raw.get("file"));
        return new Image(bytes, shape.get(0).intValue(), shape.get(1).intValue(), spec.channels());
    }
}
