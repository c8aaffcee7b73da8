"""Warp functions and kernels the systems share."""
