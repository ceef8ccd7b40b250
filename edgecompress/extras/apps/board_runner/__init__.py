"""The runner in a board package, one file: predict, self-test, benchmark, serve. Runs on Python 3.10."""
