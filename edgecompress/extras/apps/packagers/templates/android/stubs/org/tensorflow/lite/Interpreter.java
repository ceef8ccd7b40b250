package org.tensorflow.lite;

import java.nio.ByteBuffer;

public final class Interpreter extends InterpreterImpl implements InterpreterApi {
    public static class Options extends InterpreterImpl.Options {
        public Options() {}

        @Override
        public Options setNumThreads(int numThreads) {
            return this;
        }

        @Override
        public Options setUseXNNPACK(boolean useXNNPACK) {
            return this;
        }
    }

    public Interpreter(ByteBuffer byteBuffer, Options options) {}

    public void resetVariableTensors() {}
}
