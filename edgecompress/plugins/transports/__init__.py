"""One file per transport; the file name is its name."""
