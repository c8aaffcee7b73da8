"""Physics: systems, rollouts and their gradients, what a camera sees of them, rendering."""

DEFAULT_SYSTEM = "quadrotor"  # where a user names none: the system of the sample
