package ai.edgecompress.model;

import ai.edgecompress.processing.Golden;
import ai.edgecompress.processing.Quantize;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;
import java.util.Map;

/** An input or output as the card describes it: real numbers outside, what the model stores inside. */
final class Tensor {
    final String name;
    final String dtype;
    final long[] shape;
    final boolean quantized;
    final double scale;
    final int zeroPoint;
    final String feeds;

    Tensor(Map<String, Object> spec) {
        name = (String) spec.get("name");
        dtype = (String) spec.get("dtype");
        feeds = (String) spec.get("feeds");
        List<Number> sizes = Facts.numbers(spec.get("shape"));
        shape = new long[sizes.size()];
        for (int i = 0; i < shape.length; i++) {
            shape[i] = sizes.get(i).longValue();
        }
        Map<String, Object> how = Facts.table(spec.get("quantization"));
        quantized = how != null;
        scale = quantized ? Facts.numbers(how.get("scale")).get(0).doubleValue() : 1;
        zeroPoint = quantized ? Facts.numbers(how.get("zero_point")).get(0).intValue() : 0;
    }

    /** How many numbers it has. */
    int size() {
        long size = 1;
        for (long axis : shape) {
            size = Math.multiplyExact(size, axis);
        }
        return Math.toIntExact(size);
    }

    /** Bytes of one number. */
    int width() {
        switch (dtype) {
            case "bool":
            case "int8":
            case "uint8":
                return 1;
            case "int16":
                return 2;
            case "int64":
            case "float64":
                return 8;
            default:
                return 4;
        }
    }

    /** An empty buffer for all of it, as engines take it. */
    ByteBuffer buffer() {
        return ByteBuffer.allocateDirect(Math.multiplyExact(size(), width())).order(ByteOrder.nativeOrder());
    }

    /** Real numbers as the model stores them. Throws IllegalArgumentException for another count. */
    ByteBuffer encoded(float[] real) {
        if (real.length != size()) {
            throw new IllegalArgumentException(
                    "input '" + name + "' takes " + size() + " numbers, " + real.length + " were given");
        }
        if (quantized) {
            boolean signed = dtype.equals("int8");
            return filled(signed ? Quantize.int8(real, scale, zeroPoint) : Quantize.uint8(real, scale, zeroPoint));
        }
        ByteBuffer buffer = buffer();
        for (float x : real) {
            put(buffer, x);
        }
        buffer.rewind();
        return buffer;
    }

    /** Little-endian bytes of a golden file in a buffer. Throws IllegalArgumentException for another count. */
    ByteBuffer filled(byte[] bytes) {
        ByteBuffer buffer = buffer();
        if (bytes.length != buffer.capacity()) {
            throw new IllegalArgumentException(
                    "'" + name + "' has " + buffer.capacity() + " bytes, " + bytes.length + " were given");
        }
        buffer.put(bytes);
        buffer.rewind();
        return buffer;
    }

    /** What an engine answered, as real numbers. Throws IllegalArgumentException for another count. */
    float[] real(ByteBuffer answer) {
        byte[] bytes = new byte[answer.remaining()];
        answer.duplicate().get(bytes);
        if (bytes.length != size() * width()) {
            throw new IllegalArgumentException(
                    "'" + name + "' has " + size() * width() + " bytes, " + bytes.length + " came");
        }
        return real(bytes);
    }

    /** Little-endian bytes as real numbers. */
    float[] real(byte[] bytes) {
        if (quantized && dtype.equals("int8")) {
            return Quantize.realOfInt8(bytes, scale, zeroPoint);
        }
        if (quantized && dtype.equals("uint8")) {
            return Quantize.realOfUint8(bytes, scale, zeroPoint);
        }
        return Golden.floats(bytes, dtype);
    }

    private void put(ByteBuffer buffer, float x) {
        switch (dtype) {
            case "bool":
                buffer.put((byte) (x == 0 ? 0 : 1));
                break;
            case "int8":
            case "uint8":
                buffer.put((byte) (int) x);
                break;
            case "int32":
                buffer.putInt((int) x);
                break;
            case "int64":
                buffer.putLong((long) x);
                break;
            case "float64":
                buffer.putDouble(x);
                break;
            default:
                buffer.putFloat(x);
        }
    }
}
