package android.graphics;

/** Pixels in memory. */
public final class Bitmap {
    public enum Config {
        ARGB_8888,
        HARDWARE
    }

    private final int[] colors;
    private final int width;
    private final int height;
    private final Config config;

    private Bitmap(int[] colors, int width, int height, Config config) {
        this.colors = colors;
        this.width = width;
        this.height = height;
        this.config = config;
    }

    public static Bitmap createBitmap(int[] colors, int width, int height, Config config) {
        return new Bitmap(colors.clone(), width, height, config);
    }

    public Bitmap copy(Config wanted, boolean isMutable) {
        return new Bitmap(colors, width, height, wanted);
    }

    public Config getConfig() {
        return config;
    }

    public int getWidth() {
        return width;
    }

    public int getHeight() {
        return height;
    }

    public void getPixels(int[] pixels, int offset, int stride, int x, int y, int wide, int high) {
        if (config == Config.HARDWARE || offset != 0 || stride != width || x != 0 || y != 0 || wide != width || high != height) {
            throw new IllegalStateException("unable to getPixels()");
        }
        System.arraycopy(colors, 0, pixels, 0, colors.length);
    }
}
