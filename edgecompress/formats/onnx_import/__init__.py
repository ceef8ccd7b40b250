"""ONNX graphs as torch modules: layers are `nn` modules under the file's names, so they can be exported and trained.

`operators` has the functions (one entry for an operator of ONNX), `layers` the operators whose weights are constants.
"""
