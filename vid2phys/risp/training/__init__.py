"""Training of the networks: losses, the loop, validation, several processes."""
