"""A body's surface, symmetries, keypoints, and its state as numbers."""
