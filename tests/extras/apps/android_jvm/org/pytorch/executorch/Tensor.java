package org.pytorch.executorch;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import pipe.Pipe;

/** Of float32, the only type that these tests have. */
public class Tensor {
    final Pipe.Item item;

    Tensor(Pipe.Item item) {
        this.item = item;
    }

    public static Tensor fromBlob(FloatBuffer data, long[] shape) {
        if (!data.isDirect() || data.order() != ByteOrder.nativeOrder()) {
            throw new IllegalArgumentException("Data buffer must be direct and of native byte order");
        }
        ByteBuffer bytes = ByteBuffer.allocate(4 * data.capacity()).order(ByteOrder.nativeOrder());
        bytes.asFloatBuffer().put(data.duplicate());
        return new Tensor(new Pipe.Item("", "float32", shape, bytes.array()));
    }

    public long numel() {
        return item.bytes.length / 4;
    }

    public float[] getDataAsFloatArray() {
        float[] found = new float[item.bytes.length / 4];
        ByteBuffer.wrap(item.bytes).order(ByteOrder.nativeOrder()).asFloatBuffer().get(found);
        return found;
    }
}
