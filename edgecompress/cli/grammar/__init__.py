"""Every command: its arguments, its help, its examples and the function that runs it; a file per group."""
