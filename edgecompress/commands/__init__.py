"""One file per command: the functions that notebooks and the command line call."""
