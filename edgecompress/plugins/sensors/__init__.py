"""One file per sensor; the file name is its name."""
