"""What a board package carries as one file: it runs the model, tests itself, measures, serves. Python 3.10 runs it."""
