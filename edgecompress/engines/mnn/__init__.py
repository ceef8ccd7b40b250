"""MNN: .mnn files, converted from ONNX, in fp32 and in half precision."""
