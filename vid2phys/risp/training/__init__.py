"""Training of the networks: the loop, checkpoints, optimisers, several processes."""
