package android.content.res;

import java.io.File;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;

/** Android's, over a folder: what is compressed has no descriptor. */
public final class AssetManager {
    private final File folder;
    private final boolean compressed;

    public AssetManager(File folder, boolean compressed) {
        this.folder = folder;
        this.compressed = compressed;
    }

    public InputStream open(String fileName) throws IOException {
        return new FileInputStream(new File(folder, fileName));
    }

    public AssetFileDescriptor openFd(String fileName) throws IOException {
        if (compressed) {
            throw new FileNotFoundException("This file can not be opened as a file descriptor; it is probably compressed");
        }
        return new AssetFileDescriptor(new File(folder, fileName));
    }
}
