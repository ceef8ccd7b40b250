package ai.edgecompress.model;

import ai.onnxruntime.OrtEnvironment;
import ai.onnxruntime.OrtEpDevice;
import ai.onnxruntime.OrtException;
import ai.onnxruntime.OrtSession;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** ONNX Runtime with Qualcomm's plug-in: what was compiled for the NPU, else the same net on the CPU. */
final class QnnEngine implements Engine {
    private static final String PROVIDER = "QNNExecutionProvider";
    private static final String LIBRARY = "libonnxruntime_providers_qnn.so";
    private static final String COMPILED = "/model_ctx.onnx";
    private static final String PLAIN = "/model.onnx";

    private static boolean registered;

    private final Engine engine;
    private final String left;

    private QnnEngine(Engine engine, String left) {
        this.engine = engine;
        this.left = left;
    }

    static Engine open(ModelFiles files, Spec spec, int threads) throws IOException {
        String why;
        try {
            Map<String, Object> compiled = Facts.table(Facts.table(spec.facts.get("runtime")).get("compiled"));
            boolean whole = Facts.whole(compiled.get("cpu_operators")) == 0;
            OnnxEngine.More npu = (environment, options) -> npu(environment, options, whole);
            return new QnnEngine(OnnxEngine.open(files, spec, threads, file(spec, COMPILED), npu), null);
        } catch (IOException refused) {
            why = refused.getMessage();
        } catch (UnsatisfiedLinkError missing) {
            why = String.valueOf(missing.getMessage());
        }
        return new QnnEngine(
                OnnxEngine.open(files, spec, threads, file(spec, PLAIN), (environment, options) -> {}), why);
    }

    private static String file(Spec spec, String end) throws IOException {
        for (Map<String, Object> file : spec.files) {
            if (((String) file.get("path")).endsWith(end)) {
                return (String) file.get("path");
            }
        }
        throw new IOException("the model has no file" + end);
    }

    /** Its NPU: alone, where all operators were compiled for it. */
    private static synchronized void npu(
            OrtEnvironment environment, OrtSession.SessionOptions options, boolean whole) throws OrtException {
        if (!registered) {
            environment.registerExecutionProviderLibrary(PROVIDER, LIBRARY);
            registered = true;
        }
        List<OrtEpDevice> found = new ArrayList<>();
        for (OrtEpDevice device : environment.getEpDevices()) {
            if (found.isEmpty() && PROVIDER.equals(device.getName())) {
                found.add(device);
            }
        }
        if (found.isEmpty()) {
            throw new OrtException("this phone has no NPU that Qualcomm's plug-in knows");
        }
        if (whole) {
            options.addConfigEntry("session.disable_cpu_ep_fallback", "1");
        }
        options.addExecutionProvider(found, Collections.singletonMap("backend_path", "libQnnHtp.so"));
    }

    @Override
    public ByteBuffer[] run(ByteBuffer[] inputs) throws IOException {
        return engine.run(inputs);
    }

    @Override
    public String left() {
        return left;
    }

    @Override
    public void close() {
        engine.close();
    }
}
