"""How the networks are trained: recipes, losses, the loop, validation."""
