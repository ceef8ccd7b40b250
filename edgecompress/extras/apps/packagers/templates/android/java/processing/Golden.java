package ai.edgecompress.processing;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/** The stored answers of a model, and how far another answer is from them. */
public final class Golden {
    private Golden() {}

    /**
     * sqrt(sum of (found - wanted)^2 / sum of wanted^2): 0 where they are equal. Infinite where the lengths differ,
     * where a number is NaN or infinite, and where all that is wanted is 0 and something else was found.
     */
    public static double relativeRms(float[] wanted, float[] found) {
        if (wanted.length != found.length) {
            return Double.POSITIVE_INFINITY;
        }
        double error = 0;
        double power = 0;
        for (int i = 0; i < wanted.length; i++) {
            double difference = (double) found[i] - wanted[i];
            error += difference * difference;
            power += (double) wanted[i] * wanted[i];
        }
        if (error == 0) {
            return 0;
        }
        double ratio = Math.sqrt(error / power);
        return Double.isNaN(ratio) ? Double.POSITIVE_INFINITY : ratio;
    }

    /** The largest |found - wanted|; infinite where the lengths differ or a number is NaN or infinite. */
    public static double largestError(float[] wanted, float[] found) {
        if (wanted.length != found.length) {
            return Double.POSITIVE_INFINITY;
        }
        double largest = 0;
        for (int i = 0; i < wanted.length; i++) {
            double difference = Math.abs((double) found[i] - wanted[i]);
            largest = difference <= largest ? largest : difference;
            if (Double.isNaN(difference)) {
                return Double.POSITIVE_INFINITY;
            }
        }
        return largest;
    }

    /** Lower-case hexadecimal sha256. */
    public static String sha256(byte[] bytes) {
        return sha256(ByteBuffer.wrap(bytes));
    }

    /** The sha256 of what remains in a buffer (a mapped file, say), whose position stays. */
    public static String sha256(ByteBuffer buffer) {
        try {
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            digest.update(buffer.duplicate());
            StringBuilder text = new StringBuilder(64);
            for (byte b : digest.digest()) {
                text.append(Character.forDigit(b >> 4 & 15, 16)).append(Character.forDigit(b & 15, 16));
            }
            return text.toString();
        } catch (NoSuchAlgorithmException missing) {
            throw new IllegalStateException("this machine has no SHA-256", missing); // every Java has it
        }
    }

    /** Little-endian numbers of a card's dtype ("bool", "int8", "float32", ...). Throws IllegalArgumentException. */
    public static double[] numbers(byte[] bytes, String dtype) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        double[] found = new double[Numbers.count(bytes.length, dtype)];
        for (int i = 0; i < found.length; i++) {
            found[i] = Numbers.next(buffer, dtype);
        }
        return found;
    }

    /** As `numbers`, in single precision: exact for dtypes of at most 16 bits, and float32. */
    public static float[] floats(byte[] bytes, String dtype) {
        double[] numbers = numbers(bytes, dtype);
        float[] found = new float[numbers.length];
        for (int i = 0; i < found.length; i++) {
            found[i] = (float) numbers[i];
        }
        return found;
    }

    /** Little-endian numbers of 16 bits: raw audio. */
    public static short[] shorts(byte[] bytes) {
        short[] found = new short[Numbers.count(bytes.length, "int16")];
        ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asShortBuffer().get(found);
        return found;
    }

    /** Little-endian bytes of single precision. */
    public static byte[] bytes(float[] numbers) {
        ByteBuffer buffer = ByteBuffer.allocate(4 * numbers.length).order(ByteOrder.LITTLE_ENDIAN);
        buffer.asFloatBuffer().put(numbers);
        return buffer.array();
    }
}
