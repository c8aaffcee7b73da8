"""What training images look like: light, materials, backgrounds, the camera's chain, what stands in the way."""
