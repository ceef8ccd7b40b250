package ai.edgecompress.model;

import android.content.Context;
import android.content.res.AssetFileDescriptor;
import android.content.res.AssetManager;
import java.io.BufferedInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.util.Map;

/** The files of the model among the app's assets, as they are or packed. */
final class ModelFiles {
    private static final String PACKED = ".packed";

    private final AssetManager assets;
    private final File cache;
    private final String folder;
    private final Spec spec;
    private final boolean packed;

    ModelFiles(Context context, Spec spec) throws IOException {
        this.assets = context.getAssets();
        this.cache = context.getCacheDir();
        this.folder = spec.slug;
        this.spec = spec;
        this.packed = isPacked();
    }

    private boolean isPacked() throws IOException {
        try {
            assets.open(folder + "/" + spec.files.get(0).get("path") + PACKED).close();
            return true;
        } catch (FileNotFoundException plain) {
            return false;
        }
    }

    /** All of a small file. Throws FileNotFoundException when it is not there. */
    byte[] read(String path) throws IOException {
        try (InputStream in = assets.open(folder + "/" + path)) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            byte[] block = new byte[1 << 16];
            for (int count = in.read(block); count >= 0; count = in.read(block)) {
                out.write(block, 0, count);
            }
            return out.toByteArray();
        }
    }

    /**
     * A file of the model as memory: mapped as it lies in the APK; where it is packed, out of the cache folder; where it
     * is compressed there, in a direct buffer.
     */
    ByteBuffer map(String path) throws IOException {
        if (packed) {
            try (FileInputStream in = new FileInputStream(new File(unpacked(), path))) {
                FileChannel channel = in.getChannel();
                return channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size());
            }
        }
        try (AssetFileDescriptor found = assets.openFd(folder + "/" + path);
                FileInputStream in = new FileInputStream(found.getFileDescriptor())) {
            long start = found.getStartOffset();
            return in.getChannel().map(FileChannel.MapMode.READ_ONLY, start, found.getDeclaredLength());
        } catch (FileNotFoundException compressed) {
            byte[] bytes = read(path);
            ByteBuffer buffer = ByteBuffer.allocateDirect(bytes.length).order(ByteOrder.nativeOrder());
            buffer.put(bytes);
            buffer.rewind();
            return buffer;
        }
    }

    /**
     * A folder in the cache with all of the model's files, for engines that open a path, and where they are packed. It
     * has its files whole or is not there: it is filled under another name, then renamed.
     */
    File unpacked() throws IOException {
        File whole = new File(cache, spec.slug + "-" + spec.digest());
        if (!whole.isDirectory()) {
            File part = new File(cache, whole.getName() + "-" + Thread.currentThread().getId() + "-" + System.nanoTime());
            for (Map<String, Object> file : spec.files) {
                copy((String) file.get("path"), part);
            }
            if (!part.renameTo(whole) && !whole.isDirectory()) {
                throw new IOException(part + ": cannot be renamed to " + whole.getName());
            }
        }
        return whole;
    }

    private void copy(String path, File into) throws IOException {
        File file = new File(into, path);
        if (!file.getParentFile().isDirectory() && !file.getParentFile().mkdirs()) {
            throw new IOException(file.getParentFile() + ": cannot be made; is the storage full?");
        }
        try (InputStream in = assets.open(folder + "/" + path + (packed ? PACKED : ""));
                FileOutputStream out = new FileOutputStream(file)) {
            if (packed) {
                Unpack.write(new BufferedInputStream(in), out);
            }
            byte[] block = new byte[1 << 16];
            for (int count = in.read(block); count >= 0; count = in.read(block)) {
                out.write(block, 0, count);
            }
            out.getFD().sync();
        }
    }
}
