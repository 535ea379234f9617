# make benchmark | lab | test | test-all | test-lab | test-nightly | bounds | lint | wheels | study | study-gpu | peers | figures | readme | docs | clean: everything in .venv, installed once.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RESULTS ?= results

comma := ,

# CUDA major version that the NVIDIA driver supports, empty without a driver (asked once a call)
CUDA   := $(shell nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[^:]*Version: *\([0-9]*\)\..*/\1/p' | head -1)
EXTRA  := $(if $(CUDA),$(if $(shell test $(CUDA) -ge 13 && echo 1),$(comma)cuda13,$(if $(filter 12,$(CUDA)),$(comma)cuda12)))

# Editable installations compile loops on first use: building them needs no Numba
export EXPRKIT_SHIP_LOOPS ?= none

# A stamp says what has been installed; it is made again when pyproject.toml changes.
NOTEBOOKS := $(VENV)/.notebooks-search$(subst $(comma),-,$(EXTRA))
TESTS     := $(VENV)/.test$(subst $(comma),-,$(EXTRA))
DOCS      := $(VENV)/.docs

STUDY := TQDM_MININTERVAL=5 $(BIN)/python -m exprkit sweep notebooks/benchmark.ipynb --plain
# on data that has to be downloaded
NIKURADSE := $(STUDY) data/studies/nikuradse.yaml --out $(RESULTS)/nikuradse --into data/results/nikuradse.parquet

.PHONY: benchmark lab test test-all test-lab test-nightly bounds lint wheels study study-gpu peers figures readme docs clean

benchmark: $(NOTEBOOKS)
	$(BIN)/python -m exprkit benchmark --results $(RESULTS)

# Jupyter's own options go into LAB_ARGS, as in make lab LAB_ARGS="--port=8889 --no-browser".
lab: $(NOTEBOOKS)
	$(BIN)/python -m exprkit lab $(LAB_ARGS)

# with compiled tests kept, whatever the environment says: without, each worker compiles 90 files anew
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist worksteal

# All but what is marked slow: every module and backend, about five minutes on two cores.
test: $(TESTS)
	$(PYTEST) -m "not slow"

# All but the gallery's scripts
test-all: $(TESTS)
	$(PYTEST) -m "not nightly"

# Each script of the gallery: minutes, of users' work that other tests do as well
test-nightly: $(TESTS)
	$(PYTEST) -m nightly

# Tests of the study, the explorer and the notebooks alone, slow ones included
test-lab: $(TESTS)
	$(PYTEST) -m lab

# Parsing, lowering, derivatives and fits once more, with every index of a compiled loop checked: minutes, mostly of compiling.
bounds: $(TESTS)
	NUMBA_BOUNDSCHECK=1 EXPRKIT_CACHE_DIR=$(VENV)/bounds $(PYTEST) \
	    tests/test_memory.py tests/test_parser.py tests/test_lower.py tests/test_gradient.py tests/test_fit.py \
	    tests/test_slices.py tests/test_duplicates.py

lint: $(TESTS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The wheel for PYTHON (make wheels PYTHON=python3.12) with machine code for this processor, or for LEVELS=x86-64-v3,x86-64-v4, tried.
wheels:
	EXPRKIT_SHIP_LOOPS=$(LEVELS) $(PYTHON) tests/try_wheel.py

# The study on this machine's CPU (under ten minutes on two cores) or on its GPU, with peers there; then figures and tables.
study: MACHINE := cpu
study-gpu: MACHINE := h200
study study-gpu: $(NOTEBOOKS)
	$(BIN)/python -c 'from exprkit.study import records; records.refuse_changes()'
	rm -rf $(RESULTS)/$(MACHINE) data/results/$(MACHINE).*
	$(STUDY) data/studies/$(MACHINE).yaml --out $(RESULTS)/$(MACHINE) --into data/results/$(MACHINE).parquet
	-$(NIKURADSE)
	$(if $(filter %-gpu,$@),$(MAKE) peers)
	$(MAKE) figures readme

# exprkit beside pyoperon, NumPy, numexpr and JAX, on a GPU beside those that run there; and there one expression alone.
peers: $(NOTEBOOKS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[peers]' $(if $(CUDA),'jax[cuda$(CUDA)]')
	$(BIN)/python tests/bench_peers.py $(if $(CUDA),--gpu --csv data/results/peers_h200.csv,--csv data/results/peers.csv)
	$(if $(CUDA),$(BIN)/python tests/bench_expression.py --csv data/results/expression.csv)

figures: $(NOTEBOOKS)
	$(BIN)/python -m exprkit figures

readme: $(NOTEBOOKS)
	$(BIN)/python -m exprkit readme

# The site, in build/docs/index.html; every warning is an error, a link that leads nowhere too
docs: $(DOCS)
	$(BIN)/python -m sphinx -q -W --keep-going -c .docs . build/docs

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "exprkit needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(NOTEBOOKS): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[notebooks,search$(EXTRA)]'
	@touch $@

$(TESTS): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test$(EXTRA)]'
	@touch $@

$(DOCS): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

clean:
	rm -rf $(VENV) $(RESULTS) build/docs build/gallery .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find exprkit tests -name __pycache__ -prune -exec rm -rf {} +
