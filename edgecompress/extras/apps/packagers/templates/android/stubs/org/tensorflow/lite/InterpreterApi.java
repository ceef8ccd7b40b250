package org.tensorflow.lite;

import java.util.Map;

public interface InterpreterApi extends AutoCloseable {
    class Options {
        public Options setNumThreads(int numThreads) {
            return this;
        }

        public Options setUseXNNPACK(boolean useXNNPACK) {
            return this;
        }
    }

    void runForMultipleInputsOutputs(Object[] inputs, Map<Integer, Object> outputs);

    @Override
    void close();
}
