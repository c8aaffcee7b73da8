"""Detectors: from a frame to candidate poses with evidence, one file each."""
