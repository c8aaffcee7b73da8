"""Clips with a known truth, drawn by a path tracer that the tool itself does not use."""
