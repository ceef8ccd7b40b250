"""Errors, nouns, configuration, registry, statistics: standard library only, but for the classes of a card."""
