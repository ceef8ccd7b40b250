package org.pytorch.executorch;

import java.nio.ByteBuffer;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;

public abstract class Tensor {
    public static Tensor fromBlobUnsigned(ByteBuffer data, long[] shape) {
        return null;
    }

    public static Tensor fromBlob(ByteBuffer data, long[] shape) {
        return null;
    }

    public static Tensor fromBlob(IntBuffer data, long[] shape) {
        return null;
    }

    public static Tensor fromBlob(FloatBuffer data, long[] shape) {
        return null;
    }

    public static Tensor fromBlob(LongBuffer data, long[] shape) {
        return null;
    }

    public static Tensor fromBlob(DoubleBuffer data, long[] shape) {
        return null;
    }

    public long numel() {
        return 0;
    }

    public byte[] getDataAsByteArray() {
        return null;
    }

    public byte[] getDataAsUnsignedByteArray() {
        return null;
    }

    public int[] getDataAsIntArray() {
        return null;
    }

    public float[] getDataAsFloatArray() {
        return null;
    }

    public long[] getDataAsLongArray() {
        return null;
    }

    public double[] getDataAsDoubleArray() {
        return null;
    }
}
