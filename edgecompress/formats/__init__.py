"""Model files and nets, read, edited and counted without an engine."""
