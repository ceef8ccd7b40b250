"""Fuzzing of what reads strangers' files: `make fuzz`. Each file of `targets` is a reader and what must hold of it."""
