"""Networks and trained models: heat maps, the locator, model folders, and which model fits a mesh."""
