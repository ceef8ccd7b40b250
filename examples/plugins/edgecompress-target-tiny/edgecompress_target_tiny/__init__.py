"""A target and a device of one's own: this distribution holds TOML files and no code."""
