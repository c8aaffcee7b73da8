"""Images of meshes: Mitsuba for training, a rasterizer for overlays."""
