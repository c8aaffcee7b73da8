"""From frames to poses: views, PnP, search, following, the branch of a symmetric body."""
