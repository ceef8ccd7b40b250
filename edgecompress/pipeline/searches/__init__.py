"""Searches: loops on results that choose a variant, a strength or a repair."""
