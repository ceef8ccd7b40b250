"""One file per section of the report that is told by name: what profilers found, and what some runs have."""
