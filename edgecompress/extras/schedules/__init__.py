"""Distiller's YAML schedules, read and run unmodified: pruners, regularizers, quantizers, learning rates."""
