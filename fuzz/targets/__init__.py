"""One file per reader of strangers' bytes: `check(data, folder)`, and `WORDS`, which its format is made of."""
