package ai.onnxruntime;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.Locale;
import pipe.Pipe;

/** Of float32 and 8 bits, the only types that these tests have. */
public class OnnxTensor extends OnnxTensorLike {
    final Pipe.Item item;

    OnnxTensor(Pipe.Item item) {
        this.item = item;
    }

    public static OnnxTensor createTensor(OrtEnvironment env, FloatBuffer data, long[] shape) throws OrtException {
        ByteBuffer bytes = ByteBuffer.allocate(4 * data.remaining()).order(ByteOrder.nativeOrder());
        bytes.asFloatBuffer().put(data.duplicate());
        return new OnnxTensor(new Pipe.Item("", "float32", shape, bytes.array()));
    }

    public static OnnxTensor createTensor(OrtEnvironment env, ByteBuffer data, long[] shape, OnnxJavaType type)
            throws OrtException {
        return new OnnxTensor(new Pipe.Item("", type.name().toLowerCase(Locale.ROOT), shape, Pipe.bytes(data)));
    }

    public ByteBuffer getByteBuffer() {
        return ByteBuffer.wrap(item.bytes); // big-endian, as the real one leaves it
    }
}
