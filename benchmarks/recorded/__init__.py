"""Fits to recorded motion: what each recording gives, with intervals, and how well it foretells others."""
