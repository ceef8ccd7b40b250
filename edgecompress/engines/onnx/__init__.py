"""ONNX Runtime on CPUs and NVIDIA GPUs: .onnx files, their graphs edited and quantized."""
