"""One file per packager; the file name is its name."""
