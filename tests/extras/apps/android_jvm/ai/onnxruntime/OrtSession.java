package ai.onnxruntime;

import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import pipe.Pipe;

/** ONNX Runtime's. */
public class OrtSession implements AutoCloseable {
    public static class SessionOptions implements AutoCloseable {
        public enum OptLevel {
            NO_OPT,
            BASIC_OPT,
            EXTENDED_OPT,
            ALL_OPT
        }

        public enum ExecutionMode {
            SEQUENTIAL,
            PARALLEL
        }

        boolean npu;

        public void addExecutionProvider(List<OrtEpDevice> devices, Map<String, String> providerOptions)
                throws OrtException {
            npu = true;
        }

        public void setIntraOpNumThreads(int numThreads) throws OrtException {}

        public void setOptimizationLevel(OptLevel level) throws OrtException {
            System.setProperty("asked.level", level.name());
        }

        public void setExecutionMode(ExecutionMode mode) throws OrtException {
            System.setProperty("asked.mode", mode.name());
        }

        public void setCPUArenaAllocator(boolean useArena) throws OrtException {
            System.setProperty("asked.arena", String.valueOf(useArena));
        }

        public void addConfigEntry(String configKey, String configValue) throws OrtException {
            System.setProperty("asked." + configKey, configValue);
        }

        @Override
        public void close() {}
    }

    public static class Result implements AutoCloseable {
        private final Map<String, OnnxValue> found = new LinkedHashMap<>();

        public Optional<OnnxValue> get(String key) {
            return Optional.ofNullable(found.get(key));
        }

        @Override
        public void close() {}
    }

    private final Pipe pipe;

    OrtSession(Pipe pipe) {
        this.pipe = pipe;
    }

    public Result run(Map<String, ? extends OnnxTensorLike> inputs) throws OrtException {
        List<Pipe.Item> given = new ArrayList<>();
        for (Map.Entry<String, ? extends OnnxTensorLike> entry : inputs.entrySet()) {
            Pipe.Item item = ((OnnxTensor) entry.getValue()).item;
            given.add(new Pipe.Item(entry.getKey(), item.dtype, item.shape, item.bytes));
        }
        try {
            Result result = new Result();
            for (Pipe.Item answer : pipe.run(given)) {
                result.found.put(answer.name, new OnnxTensor(answer));
            }
            return result;
        } catch (IOException broken) {
            throw new OrtException(broken.getMessage());
        }
    }

    @Override
    public void close() throws OrtException {
        pipe.close();
    }
}
