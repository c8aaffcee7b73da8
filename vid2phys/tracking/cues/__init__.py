"""Cues: what one frame shows of a body at a pose (contour, creases, region, texture, shading), one file each."""
