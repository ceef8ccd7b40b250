package ai.edgecompress.processing;

/** Scores as probabilities. */
public final class Softmax {
    private Softmax() {}

    /** exp(x) / sum of exp(x), the largest taken off first so that nothing overflows; in double precision inside. */
    public static float[] of(float[] scores) {
        double largest = Double.NEGATIVE_INFINITY;
        for (float score : scores) {
            largest = Math.max(largest, score);
        }
        double[] powers = new double[scores.length];
        double sum = 0;
        for (int i = 0; i < scores.length; i++) {
            powers[i] = Math.exp(scores[i] - largest);
            sum += powers[i];
        }
        float[] found = new float[scores.length];
        for (int i = 0; i < scores.length; i++) {
            found[i] = (float) (powers[i] / sum);
        }
        return found;
    }
}
