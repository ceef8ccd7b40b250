"""Distiller's YAML schedules, read and run unmodified."""
