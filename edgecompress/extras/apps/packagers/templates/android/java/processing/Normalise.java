package ai.edgecompress.processing;

/** x * scale, then (x - mean) / std, each operation rounded to 32 bits as numpy does it. */
public final class Normalise {
    private final float scale;
    private final float[] mean;
    private final float[] std;

    /** `mean` and `std` have one number, one per channel, or none. Throws IllegalArgumentException for a std of 0. */
    public Normalise(double scale, double[] mean, double[] std) {
        this.scale = (float) scale;
        this.mean = narrowed(mean, 0);
        this.std = narrowed(std, 1);
        for (float s : this.std) {
            if (s == 0) {
                throw new IllegalArgumentException("std must not be zero");
            }
        }
    }

    /** The numbers [..., channels], the channels side by side; a new array. Throws IllegalArgumentException. */
    public float[] of(float[] x, int channels) {
        if (x.length % channels != 0 || !fits(mean, channels) || !fits(std, channels)) {
            throw new IllegalArgumentException(
                    x.length + " numbers, " + mean.length + " means, " + std.length + " stds: not of " + channels
                            + " channels");
        }
        float[] found = new float[x.length];
        for (int i = 0; i < x.length; i++) {
            float scaled = x[i] * scale;
            float centred = scaled - mean[i % mean.length];
            found[i] = centred / std[i % std.length];
        }
        return found;
    }

    private static boolean fits(float[] values, int channels) {
        return values.length == 1 || values.length == channels;
    }

    private static float[] narrowed(double[] values, float absent) {
        if (values == null || values.length == 0) {
            return new float[] {absent};
        }
        float[] found = new float[values.length];
        for (int i = 0; i < values.length; i++) {
            found[i] = (float) values[i];
        }
        return found;
    }
}
