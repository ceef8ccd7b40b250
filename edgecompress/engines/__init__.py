"""One folder per engine: its runtimes, its techniques, and beside them what both need."""
