"""A frame's own evidence: outlines, alignment to pixels, the branch by appearance."""
