"""What every package has, whatever app it is for: a card, golden items, a bill of materials, checks, a signature."""
