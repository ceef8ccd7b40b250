"""Techniques on torch modules and programs, for any engine, and what techniques of many engines share."""
