"""The parts that all packages have: a card, golden items, a bill of materials, checks, a signature."""
