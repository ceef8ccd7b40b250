package android.graphics;

public final class Bitmap {
    public enum Config {
        ALPHA_8,
        RGB_565,
        ARGB_4444,
        ARGB_8888,
        RGBA_F16,
        HARDWARE
    }

    public static Bitmap createBitmap(int[] colors, int width, int height, Config config) {
        return null;
    }

    public Bitmap copy(Config config, boolean isMutable) {
        return null;
    }

    public Config getConfig() {
        return null;
    }

    public int getWidth() {
        return 0;
    }

    public int getHeight() {
        return 0;
    }

    public void getPixels(int[] pixels, int offset, int stride, int x, int y, int width, int height) {}
}
