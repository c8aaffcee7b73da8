"""What the commands do, as plain functions."""
