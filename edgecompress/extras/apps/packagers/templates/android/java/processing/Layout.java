package ai.edgecompress.processing;

/** Where the channels of a picture lie. */
public enum Layout {
    /** Channel by channel. */
    NCHW,
    /** Pixel by pixel: as pictures come. */
    NHWC;

    /** Numbers [height][width][channels] in this layout. */
    public float[] of(float[] x, int channels) {
        if (channels < 1 || x.length % channels != 0) {
            throw new IllegalArgumentException(x.length + " numbers are not of " + channels + " channels");
        }
        if (this == NHWC || channels == 1) {
            return x;
        }
        int pixels = x.length / channels;
        float[] found = new float[x.length];
        for (int i = 0; i < x.length; i++) {
            found[i % channels * pixels + i / channels] = x[i];
        }
        return found;
    }
}
