"""The networks and trained models: heat maps, the locator, files, and which model fits a mesh."""
