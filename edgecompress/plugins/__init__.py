"""One file per technique, runtime, transport, sensor, profiler and packager: the file's name is its name."""
