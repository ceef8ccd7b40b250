"""The command line: arguments, handlers, what the terminal shows."""
