"""One file per profiler; the file name is its name."""
