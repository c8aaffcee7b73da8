"""Clips with a known truth, rendered by a path tracer that the tool itself does not use."""
