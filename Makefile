# `make demo` and `make test` are all that a fresh Debian or Ubuntu machine needs; see `make help`.
VENV ?= .venv
PYTHON ?= python3
PY := $(VENV)/bin/python
SAMPLE := samples/quadrotor
# The sample of `make mutate`.
SEED ?= 1
COUNT ?= 60
BUDGET ?= 60
ONLY ?=
# One process for each core, as far as 16 GB reach, and one thread for each process.
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest -n auto --maxprocesses 4
export VENV PYTHON

.DEFAULT_GOAL := help
.PHONY: help demo test test-all faults mutate check audit format dist docs clean

help:
	@echo 'make demo      install if need be, then fit the sample clip: actions, trajectory, overlay, report'
	@echo 'make test      install if need be, then the tests (a few minutes)'
	@echo 'make test-all  the tests with the slow ones'
	@echo 'make faults    deliberate faults in numbers and signs, each of which a test must notice'
	@echo 'make mutate    a random sample of small faults (SEED=1 COUNT=60 BUDGET=60 s), and the share that tests notice'
	@echo 'make check     ruff, mypy and bandit'
	@echo 'make audit     known vulnerabilities of the pinned requirements; needs the network'
	@echo 'make format    ruff, in place'
	@echo 'make dist      sdist and wheel, models with them, in dist/'
	@echo 'make docs      the documentation as a site, in site/'
	@echo 'make clean     remove the virtual environment and caches (not runs/)'

# Stamps: a second `make` installs nothing unless the requirements changed.
$(VENV)/.core: pyproject.toml constraints.txt scripts/setup.sh
	bash scripts/setup.sh core

$(VENV)/.dev: pyproject.toml constraints.txt scripts/setup.sh
	bash scripts/setup.sh dev

demo: $(VENV)/.core
	$(PY) -m vid2phys identify $(SAMPLE)/clip.mp4 --mesh $(SAMPLE)/quad.obj --camera $(SAMPLE)/camera.yaml \
	  --actions $(SAMPLE)/actions.csv --fit mass
	$(PY) -m vid2phys evaluate --mocap $(SAMPLE)/mocap.csv

test: $(VENV)/.dev
	$(PYTEST)

test-all: $(VENV)/.dev
	$(PYTEST) -m ''

faults: $(VENV)/.dev
	$(PY) -m tests.faults.deliberate

mutate: $(VENV)/.dev
	$(PY) -m pip install -q -c constraints.txt -e '.[mutate]'
	$(PY) -m tests.faults.mutants --seed $(SEED) --count $(COUNT) --budget $(BUDGET) $(addprefix --only ,$(ONLY))

check: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(PY) -m bandit -q -c pyproject.toml -r vid2phys

audit: $(VENV)/.dev
	$(PY) -m pip install -q -c constraints.txt -e '.[audit]'
	$(PY) -m pip_audit --strict --no-deps --disable-pip -r constraints.txt

format: $(VENV)/.dev
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

dist: $(VENV)/.dev
	$(PY) -m build

docs: $(VENV)/.dev
	$(PY) -m pip install -q -c constraints.txt -e '.[docs]'
	$(PY) -m mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site .pytest_cache .ruff_cache .mypy_cache
