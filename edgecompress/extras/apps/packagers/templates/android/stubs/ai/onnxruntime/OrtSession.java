package ai.onnxruntime;

import java.util.List;
import java.util.Map;
import java.util.Optional;

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

        public void setIntraOpNumThreads(int numThreads) throws OrtException {}

        public void setOptimizationLevel(OptLevel level) throws OrtException {}

        public void setExecutionMode(ExecutionMode mode) throws OrtException {}

        public void setCPUArenaAllocator(boolean useArena) throws OrtException {}

        public void addConfigEntry(String configKey, String configValue) throws OrtException {}

        public void addExecutionProvider(List<OrtEpDevice> devices, Map<String, String> providerOptions)
                throws OrtException {}

        @Override
        public void close() {}
    }

    public static class Result implements AutoCloseable {
        public Optional<OnnxValue> get(String key) {
            return null;
        }

        @Override
        public void close() {}
    }

    public Result run(Map<String, ? extends OnnxTensorLike> inputs) throws OrtException {
        return null;
    }

    @Override
    public void close() throws OrtException {}
}
