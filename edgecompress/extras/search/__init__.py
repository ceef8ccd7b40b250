"""Which recipes, and training: search, advise, deploy --train."""
