"""Reading the state of a body from pictures, whatever the light and the materials."""
