"""What the pruning techniques share."""
