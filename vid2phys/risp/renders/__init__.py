"""Training images: where cameras stand, sets of renders on disk, batches of developed images."""
