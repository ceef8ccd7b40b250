package android.content.res;

import java.io.Closeable;
import java.io.FileDescriptor;
import java.io.IOException;

public class AssetFileDescriptor implements Closeable {
    public FileDescriptor getFileDescriptor() {
        return null;
    }

    public long getStartOffset() {
        return 0;
    }

    public long getDeclaredLength() {
        return 0;
    }

    @Override
    public void close() throws IOException {}
}
