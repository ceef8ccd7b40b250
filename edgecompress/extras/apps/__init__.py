"""Packages for apps."""
