"""One file per runtime; the file name is its name."""
