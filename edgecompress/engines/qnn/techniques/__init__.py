"""One file per technique; the file name is its name."""
