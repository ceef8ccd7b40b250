"""The stages of every deploy, each run in a worker, and their helpers."""
