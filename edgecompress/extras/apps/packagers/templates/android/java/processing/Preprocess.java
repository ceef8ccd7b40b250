package ai.edgecompress.processing;

/**
 * From raw data to a model's input, in this order: resize, crop (the centre), colour, x * scale, (x - mean) / std,
 * layout; of audio: spectrogram, x * scale, (x - mean) / std. What is not set is not done.
 *
 * <pre>new Preprocess().resize(256).crop(224).scale(1 / 255.0).mean(0.5).std(0.25).layout(Layout.NCHW)</pre>
 */
public final class Preprocess {
    /** Where a picture lies in the input: there x is `across` * x - `left`, and y `down` * y - `top`. */
    static final class Placement {
        final double across;
        final double down;
        final int left;
        final int top;

        Placement(double across, double down, int left, int top) {
            this.across = across;
            this.down = down;
            this.left = left;
            this.top = top;
        }
    }

    private int resize;
    private String fit = "shorter";
    private int bars;
    private int crop;
    private Colour colour = Colour.RGB;
    private double scale = 1;
    private double[] mean = {};
    private double[] std = {};
    private Layout layout;
    private Spectrogram spectrogram;

    /** The shorter side, in pixels. */
    public Preprocess resize(int pixels) {
        resize = pixels;
        return this;
    }

    /**
     * What `resize` is: "shorter", of the shorter side; "stretch", of both sides; "letterbox", of a square that the
     * picture lies in whole, between bars of the grey 0 to 255.
     */
    public Preprocess fit(String what, int grey) {
        fit = what;
        bars = grey;
        return this;
    }

    /** The square about the centre, in pixels. */
    public Preprocess crop(int pixels) {
        crop = pixels;
        return this;
    }

    /** The order of the channels. */
    public Preprocess colour(Colour order) {
        colour = order;
        return this;
    }

    /** What every number is multiplied with. */
    public Preprocess scale(double factor) {
        scale = factor;
        return this;
    }

    /** What is taken off after that: one number, or one per channel. */
    public Preprocess mean(double... perChannel) {
        mean = perChannel;
        return this;
    }

    /** What it is then divided by: one number, or one per channel. */
    public Preprocess std(double... perChannel) {
        std = perChannel;
        return this;
    }

    /** Where the channels lie. */
    public Preprocess layout(Layout order) {
        layout = order;
        return this;
    }

    /** What audio becomes. */
    public Preprocess spectrogram(Spectrogram declared) {
        spectrogram = declared;
        return this;
    }

    /** A picture as the model takes it, in its layout. Throws IllegalArgumentException for one that it does not fit. */
    public float[] of(Image picture) {
        Image image = resize > 0 ? Resize.fitted(picture, resize, fit, bars) : picture;
        image = crop > 0 ? Crop.centre(image, crop) : image;
        image = arithmetic() ? image : colour.of(image);
        float[] numbers = numbers(image.floats(), image.channels);
        return layout == null ? numbers : layout.of(numbers, image.channels);
    }

    /** Where a picture of a size lies in the input that it becomes. */
    Placement placement(int height, int width) {
        int[] fitted = resize > 0 ? Resize.size(height, width, resize, fit) : new int[] {height, width};
        int side = fit.equals("letterbox") ? resize : crop;
        return new Placement(
                (double) fitted[1] / width, (double) fitted[0] / height, begin(fitted[1], side), begin(fitted[0], side));
    }

    private static int begin(int length, int side) {
        if (side == 0) {
            return 0;
        }
        return length >= side ? (int) Math.rint((length - side) / 2.0) : -((side - length) / 2);
    }

    /** Audio of 16 bits as the model takes it. */
    public float[] of(short[] samples) {
        if (spectrogram != null) {
            return audio(spectrogram.of(samples));
        }
        float[] x = new float[samples.length];
        for (int i = 0; i < x.length; i++) {
            x[i] = samples[i];
        }
        return numbers(x, perRow());
    }

    /** Audio in -1..1, or any other numbers, as the model takes them: what only a picture has is not done. */
    public float[] of(float[] raw) {
        return spectrogram == null ? numbers(raw, perRow()) : audio(spectrogram.of(raw));
    }

    /** With a layout it is a picture of one channel. */
    private float[] audio(float[] rows) {
        return numbers(rows, layout == null ? spectrogram.bins() : 1);
    }

    /** Of plain numbers nobody says how many lie along the last axis: as many as there are means or stds. */
    private int perRow() {
        return Math.max(1, Math.max(mean.length, std.length));
    }

    /** Whether nothing is set that only a picture has: then a grey one is as good as another. */
    private boolean arithmetic() {
        return resize == 0 && crop == 0 && layout == null && colour == Colour.RGB;
    }

    private float[] numbers(float[] x, int channels) {
        return new Normalise(scale, mean, std).of(x, channels);
    }
}
