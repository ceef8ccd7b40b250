"""A job becomes a plan of stages, and is run."""
