package android.content;

import android.content.res.AssetManager;
import java.io.File;

/** A context whose assets are a folder's files. */
public final class FolderContext extends Context {
    private final File assets;
    private final File cache;
    private final boolean compressed;

    public FolderContext(File assets, File cache, boolean compressed) {
        this.assets = assets;
        this.cache = cache;
        this.compressed = compressed;
    }

    @Override
    public AssetManager getAssets() {
        return new AssetManager(assets, compressed);
    }

    @Override
    public File getCacheDir() {
        return cache;
    }
}
