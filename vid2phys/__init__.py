"""Physics out of a video."""
