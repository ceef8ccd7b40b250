package ai.onnxruntime;

/** The phone's NPU. */
public final class OrtEpDevice {
    public String getName() {
        return "QNNExecutionProvider";
    }
}
