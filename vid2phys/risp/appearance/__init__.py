"""Domain randomisation of training images: light, materials, backgrounds, occluders, the camera pipeline."""
