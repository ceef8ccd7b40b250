package org.pytorch.executorch;

/** A value. */
public class EValue {
    final Tensor tensor;

    private EValue(Tensor tensor) {
        this.tensor = tensor;
    }

    public static EValue from(Tensor tensor) {
        return new EValue(tensor);
    }

    public Tensor toTensor() {
        return tensor;
    }
}
