"""A body's surface, symmetries and keypoints, and encodings of its state."""
