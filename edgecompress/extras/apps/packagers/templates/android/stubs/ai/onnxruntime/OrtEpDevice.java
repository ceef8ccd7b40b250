package ai.onnxruntime;

public final class OrtEpDevice {
    public String getName() {
        return null;
    }
}
