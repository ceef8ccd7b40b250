package ai.edgecompress.model;

import ai.edgecompress.processing.Boxes;
import ai.edgecompress.processing.Image;
import ai.edgecompress.processing.Softmax;
import ai.edgecompress.processing.TopK;
import ai.edgecompress.processing.Turn;
import android.content.Context;
import android.graphics.Bitmap;
import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** What every wrapper does, whatever its model: one call at a time, from any thread. */
final class Model implements Closeable {
    private final Spec spec;
    private final ModelFiles files;
    private final Engine engine;
    private final Labels labels;
    private final int threads;

    private Model(Spec spec, ModelFiles files, Engine engine, int threads) throws IOException {
        this.spec = spec;
        this.files = files;
        this.engine = engine;
        this.labels = Labels.read(files);
        this.threads = threads;
    }

    static Model load(Context context, int threads, Engine.Opener opener) throws IOException {
        if (threads < 1) {
            throw new IllegalArgumentException("threads is " + threads + ", and at least 1");
        }
        Spec spec = new Spec(ModelSpec.json());
        ModelFiles files = new ModelFiles(context, spec);
        Engine engine = opener.open(files, spec, threads);
        try {
            return new Model(spec, files, engine, threads);
        } catch (IOException | RuntimeException broken) {
            engine.close();
            throw broken;
        }
    }

    synchronized float[][] run(float[]... inputs) throws IOException {
        if (inputs.length != spec.inputs.size()) {
            throw new IllegalArgumentException(
                    "the model takes " + spec.inputs.size() + " inputs, " + inputs.length + " were given");
        }
        ByteBuffer[] given = new ByteBuffer[inputs.length];
        for (int i = 0; i < given.length; i++) {
            given[i] = spec.inputs.get(i).encoded(inputs[i]);
        }
        ByteBuffer[] answers = engine.run(given);
        float[][] real = new float[answers.length][];
        for (int i = 0; i < real.length; i++) {
            real[i] = spec.outputs.get(i).real(answers[i]);
        }
        return real;
    }

    List<Prediction> classify(Bitmap bitmap) throws IOException {
        return classify(spec.preprocess().of(Pictures.of(bitmap, spec.channels())));
    }

    List<Prediction> classify(short[] samples) throws IOException {
        return classify(spec.preprocess().of(samples));
    }

    List<Prediction> classifyRaw(float[] raw) throws IOException {
        return classify(spec.preprocess().of(raw));
    }

    /** Of the one input, as the model takes it. */
    List<Prediction> classify(float[] input) throws IOException {
        float[] scores = run(input)[spec.scores()];
        boolean probabilities = Boolean.TRUE.equals(spec.postprocess.get("probabilities"));
        float[] sure = probabilities ? scores : Softmax.of(scores);
        List<Prediction> found = new ArrayList<>();
        for (int index : TopK.of(scores, Facts.whole(spec.postprocess.get("top_k")))) {
            found.add(new Prediction(index, labels.of(index), sure[index]));
        }
        return Collections.unmodifiableList(found);
    }

    /** The things in a picture; `degrees`: how far it must be turned clockwise to be upright. */
    List<Detection> detect(Bitmap bitmap, int degrees) throws IOException {
        Image image = Pictures.of(bitmap, spec.channels());
        int turns = Turn.quarters(degrees);
        Image upright = Turn.of(image, turns);
        float[][] outputs = run(spec.preprocess().of(upright));
        List<Detection> found = new ArrayList<>();
        for (Boxes.Box box : spec.boxes().of(outputs, spec.shapes(), new int[] {upright.height, upright.width}, spec.preprocess())) {
            double[] corners = Turn.back(box.corners, turns, image.height, image.width);
            for (double[] point : box.points) {
                System.arraycopy(Turn.back(point[0], point[1], turns, image.height, image.width), 0, point, 0, 2);
            }
            found.add(new Detection(box.index, labels.of(box.index), box.score, corners, box.points));
        }
        return Collections.unmodifiableList(found);
    }

    /** Of the one input, as the model takes it; corners in its pixels. */
    List<Detection> detect(float[] input) throws IOException {
        List<Detection> found = new ArrayList<>();
        for (Boxes.Box box : spec.boxes().of(run(input), spec.shapes(), null, null)) {
            found.add(new Detection(box.index, labels.of(box.index), box.score, box.corners, box.points));
        }
        return Collections.unmodifiableList(found);
    }

    /** The class of each pixel; `degrees`: how far the picture must be turned clockwise to be upright. */
    Mask segment(Bitmap bitmap, int degrees) throws IOException {
        Image image = Pictures.of(bitmap, spec.channels());
        int turns = Turn.quarters(degrees);
        Image upright = Turn.of(image, turns);
        float[] output = run(spec.preprocess().of(upright))[spec.scores()];
        int[] size = {upright.height, upright.width};
        byte[] classes = spec.segments().of(output, spec.shapes()[spec.scores()], size, spec.preprocess());
        Image mask = Turn.of(new Image(classes, size[0], size[1], 1), (4 - turns) % 4);
        return new Mask(mask.bytes, mask.height, mask.width, labels);
    }

    /** Of the one input, as the model takes it: the class of each cell of the output. */
    Mask segment(float[] input) throws IOException {
        int[] shape = spec.shapes()[spec.scores()];
        int[] plane = spec.segments().plane(shape);
        return new Mask(spec.segments().of(run(input)[spec.scores()], shape, null, null), plane[0], plane[1], labels);
    }

    /** The golden picture, as it came. */
    Bitmap goldenPicture() throws IOException {
        Image image = new Trials(spec, files, engine).image();
        return Pictures.bitmap(image);
    }

    /** The golden inputs, as `run` takes them. */
    float[][] goldenInputs() throws IOException {
        ByteBuffer[] stored = new Trials(spec, files, engine).inputs();
        float[][] real = new float[stored.length][];
        for (int i = 0; i < real.length; i++) {
            real[i] = spec.inputs.get(i).real(stored[i]);
        }
        return real;
    }

    synchronized SelfTest selfTest() {
        return new Trials(spec, files, engine).run();
    }

    synchronized String benchmark(int inferences) throws IOException {
        boolean passed = selfTest().passed();
        ByteBuffer[] inputs = new Trials(spec, files, engine).inputs();
        return new Benchmark(spec, engine, threads).run(inputs, inferences, passed);
    }

    @Override
    public synchronized void close() {
        engine.close();
    }
}
