"""Training images: viewpoints, render datasets on disk, and streams of developed images."""
