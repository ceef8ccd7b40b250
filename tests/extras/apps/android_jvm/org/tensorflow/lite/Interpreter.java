package org.tensorflow.lite;

import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import pipe.Pipe;

/** LiteRT's, which is as particular about its buffers. */
public final class Interpreter implements AutoCloseable {
    public static class Options {
        public Options setNumThreads(int numThreads) {
            return this;
        }

        public Options setUseXNNPACK(boolean useXNNPACK) {
            System.setProperty("asked.xnnpack", String.valueOf(useXNNPACK));
            return this;
        }
    }

    private final Pipe pipe;

    public Interpreter(ByteBuffer byteBuffer, Options options) {
        if (!byteBuffer.isDirect()) {
            throw new IllegalArgumentException("Model ByteBuffer should be either a MappedByteBuffer or a direct one");
        }
        try {
            File file = File.createTempFile("model", ".tflite");
            file.deleteOnExit();
            try (FileOutputStream out = new FileOutputStream(file)) {
                out.write(Pipe.bytes(byteBuffer));
            }
            pipe = new Pipe("litert", file.getPath());
        } catch (IOException broken) {
            throw new IllegalStateException(broken);
        }
    }

    public void resetVariableTensors() {}

    public void runForMultipleInputsOutputs(Object[] inputs, Map<Integer, Object> outputs) {
        List<Pipe.Item> given = new ArrayList<>();
        for (Object input : inputs) {
            ByteBuffer buffer = (ByteBuffer) input;
            if (buffer.order() != ByteOrder.nativeOrder()) {
                throw new IllegalArgumentException("Buffer is not in the native order");
            }
            given.add(new Pipe.Item("", "", new long[0], Pipe.bytes(buffer)));
        }
        try {
            List<Pipe.Item> answers = pipe.run(given);
            for (Map.Entry<Integer, Object> place : outputs.entrySet()) {
                ((ByteBuffer) place.getValue()).put(answers.get(place.getKey()).bytes);
            }
        } catch (IOException broken) {
            throw new IllegalArgumentException(broken);
        }
    }

    @Override
    public void close() {
        pipe.close();
    }
}
