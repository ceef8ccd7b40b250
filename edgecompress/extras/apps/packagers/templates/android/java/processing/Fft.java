package ai.edgecompress.processing;

/** The discrete Fourier transform of a power of two, in place: decimation in time (Cooley and Tukey 1965). */
final class Fft {
    private final int size;
    private final double[] cosines;
    private final double[] sines;

    Fft(int size) {
        this.size = size;
        cosines = new double[size / 2];
        sines = new double[size / 2];
        for (int i = 0; i < size / 2; i++) {
            cosines[i] = Math.cos(2 * Math.PI * i / size);
            sines[i] = Math.sin(2 * Math.PI * i / size);
        }
    }

    /** Overwrites real and imaginary parts with those of sum over n of x[n] exp(-2 pi i k n / size). */
    void transform(double[] real, double[] imaginary) {
        reorder(real);
        reorder(imaginary);
        for (int half = 1; half < size; half *= 2) {
            for (int begin = 0; begin < size; begin += 2 * half) {
                for (int i = 0; i < half; i++) {
                    butterfly(real, imaginary, begin + i, half, i * (size / (2 * half)));
                }
            }
        }
    }

    private void butterfly(double[] real, double[] imaginary, int at, int half, int turn) {
        double c = cosines[turn];
        double s = sines[turn];
        double r = real[at + half] * c + imaginary[at + half] * s;
        double i = imaginary[at + half] * c - real[at + half] * s;
        real[at + half] = real[at] - r;
        imaginary[at + half] = imaginary[at] - i;
        real[at] += r;
        imaginary[at] += i;
    }

    private void reorder(double[] x) {
        for (int i = 0, j = 0; i < size; i++) {
            if (i < j) {
                double held = x[i];
                x[i] = x[j];
                x[j] = held;
            }
            int bit = size >> 1;
            while (bit > 0 && (j & bit) != 0) {
                j ^= bit;
                bit >>= 1;
            }
            j |= bit;
        }
    }
}
