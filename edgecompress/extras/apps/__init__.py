"""Packages for apps: the packagers, and what all have: a card, golden items, a bill of materials, a signature."""
