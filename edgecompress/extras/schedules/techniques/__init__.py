"""Techniques."""
