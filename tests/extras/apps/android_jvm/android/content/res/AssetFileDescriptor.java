package android.content.res;

import java.io.Closeable;
import java.io.File;
import java.io.FileDescriptor;
import java.io.IOException;
import java.io.RandomAccessFile;

/** A file behind some bytes of another one, as an asset lies in an APK. */
public class AssetFileDescriptor implements Closeable {
    private static final int BEFORE = 4100;

    private final RandomAccessFile file;
    private final long length;

    AssetFileDescriptor(File asset) throws IOException {
        byte[] bytes = new byte[(int) asset.length()];
        try (RandomAccessFile whole = new RandomAccessFile(asset, "r")) {
            whole.readFully(bytes);
        }
        File apk = File.createTempFile("assets", ".apk");
        apk.deleteOnExit();
        file = new RandomAccessFile(apk, "rw");
        file.write(new byte[BEFORE]);
        file.write(bytes);
        file.write(new byte[7]);
        length = bytes.length;
    }

    public FileDescriptor getFileDescriptor() {
        try {
            return file.getFD();
        } catch (IOException closed) {
            throw new IllegalStateException(closed);
        }
    }

    public long getStartOffset() {
        return BEFORE;
    }

    public long getDeclaredLength() {
        return length;
    }

    @Override
    public void close() throws IOException {
        file.close();
    }
}
