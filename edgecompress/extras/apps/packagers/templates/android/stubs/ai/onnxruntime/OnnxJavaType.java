package ai.onnxruntime;

public enum OnnxJavaType {
    INT8,
    UINT8,
    BOOL
}
