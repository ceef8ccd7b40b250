"""ONNX files as torch nets: so an .onnx, a .keras and a SavedModel reach every format, and are pruned and trained."""
