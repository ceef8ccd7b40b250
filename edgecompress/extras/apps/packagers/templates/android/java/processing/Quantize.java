package ai.edgecompress.processing;

/** Between real numbers and the whole ones that a quantized model stores: real = (stored - zero point) * scale. */
public final class Quantize {
    private Quantize() {}

    /** Real numbers as signed bytes: rounded half to even, beyond -128 and 127 cut off. */
    public static byte[] int8(float[] x, double scale, int zeroPoint) {
        return bytes(x, (float) scale, zeroPoint, -128, 127);
    }

    /** Real numbers as unsigned bytes: rounded half to even, beyond 0 and 255 cut off. */
    public static byte[] uint8(float[] x, double scale, int zeroPoint) {
        return bytes(x, (float) scale, zeroPoint, 0, 255);
    }

    /** What signed bytes mean. */
    public static float[] realOfInt8(byte[] stored, double scale, int zeroPoint) {
        float[] found = new float[stored.length];
        for (int i = 0; i < stored.length; i++) {
            found[i] = (stored[i] - zeroPoint) * (float) scale;
        }
        return found;
    }

    /** What unsigned bytes mean. */
    public static float[] realOfUint8(byte[] stored, double scale, int zeroPoint) {
        float[] found = new float[stored.length];
        for (int i = 0; i < stored.length; i++) {
            found[i] = ((stored[i] & 0xff) - zeroPoint) * (float) scale;
        }
        return found;
    }

    private static byte[] bytes(float[] x, float scale, int zeroPoint, int lowest, int highest) {
        if (!(scale > 0)) {
            throw new IllegalArgumentException("a scale is above 0, not " + scale);
        }
        byte[] found = new byte[x.length];
        for (int i = 0; i < x.length; i++) {
            float steps = x[i] / scale;
            double whole = Math.rint(steps) + zeroPoint;
            found[i] = (byte) (int) Math.max(lowest, Math.min(highest, whole));
        }
        return found;
    }
}
