"""Reading the state of a body from images, whatever the light and the materials."""
