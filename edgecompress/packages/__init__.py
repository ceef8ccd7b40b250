"""One file per package; the file name is its name."""
