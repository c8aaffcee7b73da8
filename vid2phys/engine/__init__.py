"""Physics: systems, rollouts and their gradients, what a camera sees of them, rendering."""
