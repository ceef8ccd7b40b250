"""One file per transport, sensor, profiler and packager: the file's name is its name."""
