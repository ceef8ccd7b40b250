package org.tensorflow.lite;

import java.util.Map;

class InterpreterImpl implements InterpreterApi {
    static class Options extends InterpreterApi.Options {}

    @Override
    public void runForMultipleInputsOutputs(Object[] inputs, Map<Integer, Object> outputs) {}

    @Override
    public void close() {}
}
