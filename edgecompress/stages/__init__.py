"""The stages that every deploy has, each run in a worker; helpers of theirs lie beside them."""
