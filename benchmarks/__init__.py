"""Benchmarks: each module prints a table; `--json FILE` writes it."""
