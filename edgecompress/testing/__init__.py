"""The conformance suite for authors of plug-ins, and its nets."""
