"""What low-rank factorisation is made of."""
