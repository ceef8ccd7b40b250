package android.app;

import android.content.Context;
import android.content.Intent;
import android.content.res.AssetManager;
import android.os.Bundle;
import android.view.View;
import java.io.File;

public class Activity extends Context {
    @Override
    public AssetManager getAssets() {
        return null;
    }

    @Override
    public File getCacheDir() {
        return null;
    }

    protected void onCreate(Bundle savedInstanceState) {}

    protected void onDestroy() {}

    public void setContentView(View view) {}

    public final void runOnUiThread(Runnable action) {}

    public void startActivity(Intent intent) {}
}
