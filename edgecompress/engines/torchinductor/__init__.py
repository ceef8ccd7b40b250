"""AOTInductor: programs compiled ahead of time by PyTorch."""
