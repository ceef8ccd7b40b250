"""Targets: a file each."""
