"""From images of a board to a calibrated camera: intrinsics with their spread, its pose, and what is wrong."""
