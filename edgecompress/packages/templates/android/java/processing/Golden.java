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

    /** Little-endian numbers of a card's dtype: bool, int8, uint8, int16, int32, int64, float32, float64. */
    public static double[] numbers(byte[] bytes, String dtype) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
        double[] found = new double[bytes.length / size(bytes.length, dtype)];
        for (int i = 0; i < found.length; i++) {
            found[i] = next(buffer, dtype);
        }
        return found;
    }

    /** As `numbers`, in single precision: exact for all but int32, int64 and float64. */
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
        short[] found = new short[bytes.length / size(bytes.length, "int16")];
        ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asShortBuffer().get(found);
        return found;
    }

    /** Little-endian bytes of single precision. */
    public static byte[] bytes(float[] numbers) {
        ByteBuffer buffer = ByteBuffer.allocate(4 * numbers.length).order(ByteOrder.LITTLE_ENDIAN);
        buffer.asFloatBuffer().put(numbers);
        return buffer.array();
    }

    private static int size(int length, String dtype) {
        int size = bytesOf(dtype);
        if (length % size != 0) {
            throw new IllegalArgumentException(length + " bytes are no whole number of " + dtype);
        }
        return size;
    }

    private static int bytesOf(String dtype) {
        switch (dtype) {
            case "bool":
            case "int8":
            case "uint8":
                return 1;
            case "int16":
                return 2;
            case "int32":
            case "float32":
                return 4;
            case "int64":
            case "float64":
                return 8;
            default:
                throw new IllegalArgumentException("no numbers of dtype " + dtype + " are read here");
        }
    }

    private static double next(ByteBuffer buffer, String dtype) {
        switch (dtype) {
            case "bool":
            case "uint8":
                return buffer.get() & 0xff;
            case "int8":
                return buffer.get();
            case "int16":
                return buffer.getShort();
            case "int32":
                return buffer.getInt();
            case "float32":
                return buffer.getFloat();
            case "int64":
                return buffer.getLong();
            default:
                return buffer.getDouble();
        }
    }
}
