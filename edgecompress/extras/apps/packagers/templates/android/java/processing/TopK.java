package ai.edgecompress.processing;

/** The classes with the highest scores. */
public final class TopK {
    private TopK() {}

    /** Indices of the k highest scores (all, where there are fewer), best first; equal ones by index; NaN is lowest. */
    public static int[] of(float[] scores, int k) {
        int[] best = new int[Math.max(0, Math.min(k, scores.length))];
        int held = 0;
        for (int i = 0; i < scores.length && best.length > 0; i++) {
            int at = held;
            while (at > 0 && above(scores[i], scores[best[at - 1]])) {
                at--;
            }
            if (at < best.length) {
                held = Math.min(held + 1, best.length);
                System.arraycopy(best, at, best, at + 1, held - 1 - at);
                best[at] = i;
            }
        }
        return best;
    }

    private static boolean above(float a, float b) {
        return a > b || (Float.isNaN(b) && !Float.isNaN(a));
    }
}
