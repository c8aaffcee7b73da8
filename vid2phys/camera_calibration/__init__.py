"""Calibrate a camera from images of a board: intrinsics with standard deviations, the camera's pose, and doubts."""
