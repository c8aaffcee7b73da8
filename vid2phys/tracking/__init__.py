"""From a clip to the pose or configuration of a body in every frame: detect, refine, choose, fill gaps."""
