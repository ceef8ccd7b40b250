package ai.edgecompress.model;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import org.tensorflow.lite.Interpreter;

/** LiteRT's interpreter, on the CPU. Its inputs and outputs are in the card's order. */
final class LiteRtEngine implements Engine {
    private final Interpreter interpreter;
    private final Spec spec;

    private LiteRtEngine(Interpreter interpreter, Spec spec) {
        this.interpreter = interpreter;
        this.spec = spec;
    }

    static Engine open(ModelFiles files, Spec spec, int threads) throws IOException {
        Interpreter.Options options = new Interpreter.Options();
        options.setNumThreads(threads);
        options.setUseXNNPACK(!Boolean.FALSE.equals(spec.settings.get("xnnpack")));
        try {
            return new LiteRtEngine(new Interpreter(files.map(spec.main), options), spec);
        } catch (IllegalArgumentException refused) {
            throw new IOException(spec.main + ": LiteRT refuses it", refused);
        }
    }

    @Override
    public ByteBuffer[] run(ByteBuffer[] inputs) throws IOException {
        Object[] given = new Object[inputs.length];
        for (int i = 0; i < given.length; i++) {
            given[i] = inputs[i].duplicate().order(inputs[i].order());
        }
        ByteBuffer[] answers = new ByteBuffer[spec.outputs.size()];
        Map<Integer, Object> places = new HashMap<>();
        for (int i = 0; i < answers.length; i++) {
            answers[i] = spec.outputs.get(i).buffer();
            places.put(i, answers[i]);
        }
        interpreter.resetVariableTensors(); // the state of an LSTM: each call begins anew
        try {
            interpreter.runForMultipleInputsOutputs(given, places);
        } catch (IllegalArgumentException refused) {
            throw new IOException("LiteRT refuses to run", refused);
        }
        for (ByteBuffer answer : answers) {
            answer.rewind();
        }
        return answers;
    }

    @Override
    public void close() {
        interpreter.close();
    }
}
