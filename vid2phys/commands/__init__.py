"""The commands, as plain functions: one file each."""
