# warploom: what a newcomer types. `make demo` and `make test` set up what they need in $(VENV).
#
#   make demo       the Hopper GEMM: in the emulator, and on the GPU where there is one
#   make test       linters, types, layers, and each rule, row and kernel once; without torch, jax, triton
#   make test-all   more of each sweep, with torch, jax and transformers on the CPU: what CI runs
#   make test-slow  the rest: exhaustive sweeps, all mutants, property tests with other draws (SEED=n repeats one)
#   make lint       only the linters
#   make docs       the documentation as a site, in site/
#   make clean      remove the environment and all caches of this folder
#
# Another interpreter: make test PYTHON=python3.12 VENV=.venv312
# No network, and python3 has the packages: PYTHONPATH=src python3 -m warploom demo

PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2
# A CPU build of torch where pip finds one; plain "torch" takes gigabytes of CUDA packages.
TORCH ?= torch==2.13.0
JAX ?= jax jaxlib
TRANSFORMERS ?= transformers>=5,<6

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
GPU := $(wildcard /dev/nvidia0)$(shell command -v nvidia-smi 2>/dev/null)
COMMA := ,
EMPTY :=
BASE_EXTRA := $(if $(GPU),[gpu],$(EMPTY))
DEV_EXTRA := [dev$(if $(GPU),$(COMMA)gpu)]
ALIVE := $(BIN)/python tools/alive.py
PYTEST := $(ALIVE) $(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal
STYLE = $(BIN)/ruff check . && $(BIN)/ruff format --check .
# The seed of a run that draws other examples; a function, so that it is drawn once and only where it is used.
SEED ?= $(eval SEED := $(shell date +%s))$(SEED)
# Each process of the tests imports compiled modules, even where the user's settings forbid to write bytecode.
export PYTHONDONTWRITEBYTECODE :=
# $(JOBS) processes run tests at once: threads of NumPy and torch within them would only wait for each other.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
# At a terminal pip shows what it downloads; elsewhere it is silent, and alive.py says that it still runs.
INSTALL = if [ -t 1 ]; then quiet=; else quiet=-qq; fi; $(ALIVE) $(PIP) $$quiet install

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-slow lint types quick all docs clean

help:
	@sed -n '3,10s/^#   /  /p' Makefile

demo: $(VENV)/.base
	@$(BIN)/python -m warploom demo

test: $(VENV)/.dev
	@echo "checking the style (ruff) ..."
	@$(STYLE)
	@$(MAKE) --no-print-directory -j 2 types quick

# mypy has one core only, so the tests begin beside it.
quick: $(VENV)/.dev
	@echo "testing each rule, row and kernel once: about five minutes on two cores ..."
	@PYTHONHASHSEED=0 $(PYTEST) -m "not slow and not full" --without torch,jax,triton,transformers

# mypy reads nothing of torch, jax and transformers, so it runs while they are installed.
test-all: $(VENV)/.dev
	@echo "checking the style (ruff) ..."
	@$(STYLE)
	@$(MAKE) --no-print-directory -j 2 types all

all: $(VENV)/.all
	@echo "testing, with torch, jax and transformers: about twelve minutes on two quiet cores ..."
	@PYTHONHASHSEED=0 $(PYTEST) -m "not slow"

test-slow: $(VENV)/.dev
	@echo "testing what the others leave out, for hours; make test-slow SEED=$(SEED) draws the same examples ..."
	@PYTHONHASHSEED=$(SEED) $(PYTEST) -m "slow or hypothesis" --explore $(SEED)

lint: $(VENV)/.dev
	@echo "checking the style (ruff) ..."
	@$(STYLE)
	@$(MAKE) --no-print-directory types

types: $(VENV)/.dev
	@echo "checking the types (mypy) ..."
	@$(ALIVE) $(BIN)/mypy
	@echo "checking the layers (import-linter) ..."
	@$(ALIVE) $(BIN)/lint-imports

docs: $(VENV)/.docs
	@echo "building the site ..."
	@$(ALIVE) $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open site/index.html"

# An environment is made once; packages are installed again only when pyproject.toml has changed.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "warploom needs Python 3.11 or later; try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "$(PYTHON) cannot make an environment; on Debian and Ubuntu: apt install python3-venv"; exit 1; }

$(VENV)/.base: pyproject.toml | $(BIN)/python
	@echo "installing numpy, ptxas and the command line into $(VENV) (about 125 MB) ..."
	@$(INSTALL) -e '.$(BASE_EXTRA)'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "installing what the tests need into $(VENV) ..."
	@$(INSTALL) -e '.$(DEV_EXTRA)'
	@touch $@ $(VENV)/.base

# Tests import a small part of these packages: compiling all of them takes pip 45 seconds.
$(VENV)/.all: pyproject.toml | $(VENV)/.dev
	@echo "installing $(TORCH), $(JAX) and transformers into $(VENV) ..."
	@$(INSTALL) --no-compile '$(TORCH)'
	@$(INSTALL) --no-compile $(JAX)
	@$(INSTALL) --no-compile '$(TRANSFORMERS)' || echo "transformers could not be installed: the tests of its models are skipped"
	@touch $@

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	@echo "installing what the documentation needs into $(VENV) ..."
	@$(INSTALL) -e '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist src/*.egg-info
	find src tests benchmarks examples tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
