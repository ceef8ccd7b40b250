"""Capabilities in folders of their own, each with its commands, techniques and sections: the core runs without them."""
