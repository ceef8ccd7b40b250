"""Qualcomm's NPU, the Hexagon Tensor Processor (HTP), by ONNX Runtime's QNN: its compiler, and its emulator here."""
