"""Movable bodies: the mesh of a rigid, articulated or modal body as a function of its configuration."""
