"""One file per transport, sensor and profiler: the file's name is its name."""
