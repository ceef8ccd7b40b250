"""Devices: a file each."""
