"""Physics: systems, rollouts and their gradients, what a camera sees of them, rendering."""

SYSTEM_WITH_ACTIONS = "quadrotor"
"""What a mesh is where a user names no system, but recorded actions drive it; the sample's, too."""
SYSTEM_OF_ROBOT = "articulated"
SYSTEM_OF_TETS = "soft_body"
SYSTEM_OF_MESH = "rigid_contact"
