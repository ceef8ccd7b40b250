"""One file per command: its help, its arguments and what runs; `_` in a name is the space between two words."""
