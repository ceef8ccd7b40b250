"""Errors, nouns, configuration, registry, statistics: standard library only."""
