package ai.edgecompress.processing;

/**
 * ln(max(magnitude, floor)) of the short-time Fourier transform: frames of a clip, each under a periodic Hann window
 * and padded with zeros to the length of the transform; on request the magnitudes are summed under triangles on the
 * mel scale. Frames, window and bands are those of tf.signal.stft and tf.signal.linear_to_mel_weight_matrix.
 */
public final class Spectrogram {
    private static final double LARGEST = 32768;

    private final int frame;
    private final int hop;
    private final int length;
    private final double floor;
    private final double[] window;
    private final double[][] bands; // none: every frequency
    private final Fft fft;
    private final int size;

    /**
     * @param rate samples per second: what the clip must have been recorded at
     * @param frame samples under a window
     * @param hop samples from one frame to the next
     * @param fft length of the transform, a power of two, at least a frame
     * @param bins mel bands, or 0 for every frequency: fft / 2 + 1
     * @param floor what smaller magnitudes count as
     * @param length samples of a clip: the end is cut off, or zeros are added
     */
    public Spectrogram(int rate, int frame, int hop, int fft, int bins, double floor, int length) {
        if (frame < 1 || hop < 1 || fft < Math.max(frame, 2) || Integer.bitCount(fft) != 1 || length < frame) {
            throw new IllegalArgumentException(
                    "frame " + frame + ", hop " + hop + ", fft " + fft + ", length " + length + " do not fit together");
        }
        this.frame = frame;
        this.hop = hop;
        this.length = length;
        this.floor = floor;
        this.size = fft;
        this.fft = new Fft(fft);
        window = new double[frame];
        for (int i = 0; i < frame; i++) {
            window[i] = 0.5 - 0.5 * Math.cos(2 * Math.PI * i / frame);
        }
        bands = bins == 0 ? null : mel(bins, fft / 2 + 1, rate / 2.0);
    }

    /** Rows of the answer. */
    public int frames() {
        return 1 + (length - frame) / hop;
    }

    /** Numbers in a row. */
    public int bins() {
        return bands == null ? size / 2 + 1 : bands.length;
    }

    /** Samples of 16 bits, as fractions of 32768, -> [frames][bins]. */
    public float[] of(short[] samples) {
        double[] clip = new double[length];
        for (int i = 0; i < Math.min(length, samples.length); i++) {
            clip[i] = samples[i] / LARGEST;
        }
        return rows(clip);
    }

    /** Samples in -1..1 -> [frames][bins]. */
    public float[] of(float[] samples) {
        double[] clip = new double[length];
        for (int i = 0; i < Math.min(length, samples.length); i++) {
            clip[i] = samples[i];
        }
        return rows(clip);
    }

    private float[] rows(double[] clip) {
        float[] found = new float[frames() * bins()];
        for (int row = 0; row < frames(); row++) {
            double[] magnitudes = magnitudes(clip, row * hop);
            for (int bin = 0; bin < bins(); bin++) {
                double x = bands == null ? magnitudes[bin] : sum(bands[bin], magnitudes);
                found[row * bins() + bin] = (float) Math.log(Math.max(x, floor));
            }
        }
        return found;
    }

    private double[] magnitudes(double[] clip, int begin) {
        double[] real = new double[size];
        double[] imaginary = new double[size];
        for (int i = 0; i < frame; i++) {
            real[i] = clip[begin + i] * window[i];
        }
        fft.transform(real, imaginary);
        double[] found = new double[size / 2 + 1];
        for (int i = 0; i < found.length; i++) {
            found[i] = Math.sqrt(real[i] * real[i] + imaginary[i] * imaginary[i]);
        }
        return found;
    }

    private static double sum(double[] weights, double[] magnitudes) {
        double sum = 0;
        for (int i = 0; i < weights.length; i++) {
            sum += weights[i] * magnitudes[i];
        }
        return sum;
    }

    /** Triangles whose corners lie evenly on the mel scale from 0 to the highest frequency; frequency 0 is in none. */
    private static double[][] mel(int bins, int frequencies, double highest) {
        double step = mel(highest) / (bins + 1);
        double[][] found = new double[bins][frequencies];
        for (int bin = 0; bin < bins; bin++) {
            for (int i = 1; i < frequencies; i++) {
                double at = mel(highest * i / (frequencies - 1)) / step - bin;
                found[bin][i] = Math.max(0, Math.min(at, 2 - at));
            }
        }
        return found;
    }

    private static double mel(double hertz) {
        return 1127 * Math.log1p(hertz / 700);
    }
}
