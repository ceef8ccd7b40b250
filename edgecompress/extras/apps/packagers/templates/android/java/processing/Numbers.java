package ai.edgecompress.processing;

import java.nio.ByteBuffer;

/** The dtypes of a card, read one number at a time. */
final class Numbers {
    private static final double TWO_TO_32 = 4294967296.0;

    private Numbers() {}

    /** How many numbers so many bytes are. Throws IllegalArgumentException. */
    static int count(int bytes, String dtype) {
        int size = size(dtype);
        if (bytes % size != 0) {
            throw new IllegalArgumentException(bytes + " bytes are no whole number of " + dtype);
        }
        return bytes / size;
    }

    private static int size(String dtype) {
        switch (dtype) {
            case "bool":
            case "int8":
            case "uint8":
                return 1;
            case "int16":
            case "uint16":
            case "float16":
                return 2;
            case "int32":
            case "uint32":
            case "float32":
                return 4;
            case "int64":
            case "uint64":
            case "float64":
                return 8;
            default:
                throw new IllegalArgumentException("no numbers of dtype " + dtype + " are read here");
        }
    }

    static double next(ByteBuffer buffer, String dtype) {
        switch (dtype) {
            case "float16":
                return half(buffer.getShort());
            case "float32":
                return buffer.getFloat();
            case "float64":
                return buffer.getDouble();
            case "int8":
                return buffer.get();
            case "int16":
                return buffer.getShort();
            case "int32":
                return buffer.getInt();
            case "int64":
                return buffer.getLong();
            default:
                return unsigned(buffer, dtype);
        }
    }

    private static double unsigned(ByteBuffer buffer, String dtype) {
        switch (dtype) {
            case "uint16":
                return buffer.getShort() & 0xffff;
            case "uint32":
                return buffer.getInt() & 0xffffffffL;
            case "uint64":
                long x = buffer.getLong();
                return (x >>> 32) * TWO_TO_32 + (x & 0xffffffffL);
            default:
                return buffer.get() & 0xff;
        }
    }

    private static double half(short bits) {
        int exponent = bits >> 10 & 31;
        int fraction = bits & 1023;
        double size = Math.scalb(1024.0 + fraction, exponent - 25);
        if (exponent == 0) {
            size = Math.scalb((double) fraction, -24);
        } else if (exponent == 31) {
            size = fraction == 0 ? Double.POSITIVE_INFINITY : Double.NaN;
        }
        return bits < 0 ? -size : size;
    }
}
