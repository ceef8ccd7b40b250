package pipe;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/** The real runtime, in a Python process: tensors go there and come back. */
public final class Pipe implements AutoCloseable {
    /** A tensor with its name and type, its bytes in this machine's order. */
    public static final class Item {
        public final String name;
        public final String dtype;
        public final long[] shape;
        public final byte[] bytes;

        public Item(String name, String dtype, long[] shape, byte[] bytes) {
            this.name = name;
            this.dtype = dtype;
            this.shape = shape;
            this.bytes = bytes;
        }
    }

    private final Process process;
    private final DataOutputStream out;
    private final DataInputStream in;

    public Pipe(String runtime, String model) {
        try {
            ProcessBuilder builder = new ProcessBuilder(
                    System.getProperty("pipe.python"), System.getProperty("pipe.script"), runtime, model);
            process = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
        } catch (IOException none) {
            throw new IllegalStateException(none);
        }
        out = new DataOutputStream(process.getOutputStream());
        in = new DataInputStream(process.getInputStream());
    }

    /** What remains in a buffer. */
    public static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return bytes;
    }

    public List<Item> run(List<Item> inputs) throws IOException {
        out.writeInt(inputs.size());
        for (Item item : inputs) {
            out.writeUTF(item.name);
            out.writeUTF(item.dtype);
            out.writeInt(item.shape.length);
            for (long size : item.shape) {
                out.writeLong(size);
            }
            out.writeInt(item.bytes.length);
            out.write(item.bytes);
        }
        out.flush();
        List<Item> answers = new ArrayList<>();
        for (int left = in.readInt(); left > 0; left--) {
            String name = in.readUTF();
            String dtype = in.readUTF();
            byte[] bytes = new byte[in.readInt()];
            in.readFully(bytes);
            answers.add(new Item(name, dtype, new long[0], bytes));
        }
        return answers;
    }

    @Override
    public void close() {
        process.destroy();
    }
}
