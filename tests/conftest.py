"""Run all tests on one thread and in one process, as `make test` does: some tests count the calls that they replace."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
