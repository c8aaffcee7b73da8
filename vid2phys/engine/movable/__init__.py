"""Bodies that move by joints or by modes: vertices and keypoints as functions of a configuration."""
