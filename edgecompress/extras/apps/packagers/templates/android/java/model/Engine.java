package ai.edgecompress.model;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;

/** An inference engine with the model in it. One thread at a time. */
interface Engine extends Closeable {
    /**
     * Numbers of each input, in the card's order, in direct buffers of this machine's byte order, whole and at their
     * start, become those of each output. Throws IOException when the engine refuses.
     */
    ByteBuffer[] run(ByteBuffer[] inputs) throws IOException;

    /** Why a model for an accelerator runs on the CPU in its place; null where it does not. */
    default String left() {
        return null;
    }

    /** Frees what it holds. */
    @Override
    void close();

    /** Loads the model. */
    interface Opener {
        Engine open(ModelFiles files, Spec spec, int threads) throws IOException;
    }
}
