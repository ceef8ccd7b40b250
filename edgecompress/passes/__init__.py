"""One file per pass; the file name is its name."""
