package ai.edgecompress.model;

import ai.onnxruntime.OnnxJavaType;
import ai.onnxruntime.OnnxTensor;
import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtException;
import ai.onnxruntime.OrtSession;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.LinkedHashMap;
import java.util.Map;

/** ONNX Runtime, on the CPU. */
final class OnnxEngine implements Engine {
    private final OrtEnvironment environment;
    private final OrtSession.SessionOptions options;
    private final OrtSession session;
    private final Spec spec;

    private OnnxEngine(
            OrtEnvironment environment, OrtSession.SessionOptions options, OrtSession session, Spec spec) {
        this.environment = environment;
        this.options = options;
        this.session = session;
        this.spec = spec;
    }

    /** Adds to the options of a session what it needs beside its settings. */
    interface More {
        void add(OrtEnvironment environment, OrtSession.SessionOptions options) throws OrtException;
    }

    static Engine open(ModelFiles files, Spec spec, int threads) throws IOException {
        return open(files, spec, threads, spec.main, (environment, options) -> {});
    }

    /** A model of one file is mapped; where weights lie beside it, it is opened by its path. */
    static Engine open(ModelFiles files, Spec spec, int threads, String file, More more) throws IOException {
        try {
            OrtEnvironment environment = OrtEnvironment.getEnvironment();
            OrtSession.SessionOptions options = new OrtSession.SessionOptions();
            options.setIntraOpNumThreads(threads);
            apply(spec.settings, options);
            more.add(environment, options);
            OrtSession session = spec.files.size() == 1
                    ? environment.createSession(files.map(file), options)
                    : environment.createSession(new File(files.unpacked(), file).getPath(), options);
            return new OnnxEngine(environment, options, session, spec);
        } catch (OrtException refused) {
            throw new IOException(file + ": ONNX Runtime refuses it: " + refused.getMessage(), refused);
        }
    }

    private static void apply(Map<String, Object> settings, OrtSession.SessionOptions options) throws OrtException {
        for (Map.Entry<String, Object> setting : settings.entrySet()) {
            String value = String.valueOf(setting.getValue());
            switch (setting.getKey()) {
                case "graph_optimization_level":
                    options.setOptimizationLevel(level(value));
                    break;
                case "execution_mode":
                    options.setExecutionMode("ORT_PARALLEL".equals(value)
                            ? OrtSession.SessionOptions.ExecutionMode.PARALLEL
                            : OrtSession.SessionOptions.ExecutionMode.SEQUENTIAL);
                    break;
                case "enable_cpu_mem_arena":
                    options.setCPUArenaAllocator(Boolean.parseBoolean(value));
                    break;
                default:
                    options.addConfigEntry(setting.getKey(), value);
            }
        }
    }

    private static OrtSession.SessionOptions.OptLevel level(String name) {
        switch (name) {
            case "ORT_DISABLE_ALL":
                return OrtSession.SessionOptions.OptLevel.NO_OPT;
            case "ORT_ENABLE_BASIC":
                return OrtSession.SessionOptions.OptLevel.BASIC_OPT;
            case "ORT_ENABLE_EXTENDED":
                return OrtSession.SessionOptions.OptLevel.EXTENDED_OPT;
            default:
                return OrtSession.SessionOptions.OptLevel.ALL_OPT;
        }
    }

    @Override
    public ByteBuffer[] run(ByteBuffer[] inputs) throws IOException {
        Map<String, OnnxTensor> given = new LinkedHashMap<>();
        try {
            for (int i = 0; i < inputs.length; i++) {
                given.put(spec.inputs.get(i).name, tensor(spec.inputs.get(i), inputs[i]));
            }
            try (OrtSession.Result found = session.run(given)) {
                return answers(found);
            }
        } catch (OrtException refused) {
            throw new IOException("ONNX Runtime refuses to run", refused);
        } finally {
            for (OnnxTensor tensor : given.values()) {
                tensor.close();
            }
        }
    }

    private OnnxTensor tensor(Tensor input, ByteBuffer stored) throws OrtException {
        ByteBuffer data = stored.duplicate().order(ByteOrder.nativeOrder());
        switch (input.dtype) {
            case "float32":
                return OnnxTensor.createTensor(environment, data.asFloatBuffer(), input.shape);
            case "float64":
                return OnnxTensor.createTensor(environment, data.asDoubleBuffer(), input.shape);
            case "int32":
                return OnnxTensor.createTensor(environment, data.asIntBuffer(), input.shape);
            case "int64":
                return OnnxTensor.createTensor(environment, data.asLongBuffer(), input.shape);
            default:
                return OnnxTensor.createTensor(environment, data, input.shape, type(input.dtype));
        }
    }

    private static OnnxJavaType type(String dtype) {
        switch (dtype) {
            case "bool":
                return OnnxJavaType.BOOL;
            case "uint8":
                return OnnxJavaType.UINT8;
            default:
                return OnnxJavaType.INT8;
        }
    }

    private ByteBuffer[] answers(OrtSession.Result found) throws IOException {
        ByteBuffer[] answers = new ByteBuffer[spec.outputs.size()];
        for (int i = 0; i < answers.length; i++) {
            String name = spec.outputs.get(i).name;
            if (!found.get(name).isPresent()) {
                throw new IOException("the model has no output '" + name + "'");
            }
            answers[i] = ((OnnxTensor) found.get(name).get()).getByteBuffer().order(ByteOrder.nativeOrder());
        }
        return answers;
    }

    @Override
    public void close() {
        try {
            session.close();
            options.close();
        } catch (OrtException broken) {
            throw new IllegalStateException("ONNX Runtime cannot be closed", broken);
        }
    }
}
