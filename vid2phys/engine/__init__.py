"""Physics: systems, rollouts and their gradients, what a camera sees of them, rendering."""

SYSTEM_OF_SAMPLE = "quadrotor"
"""System that is driven by recorded actions, where a user names none."""
SYSTEM_OF_ROBOT = "articulated"
SYSTEM_OF_TETS = "soft_body"
SYSTEM_OF_MESH = "rigid_contact"
