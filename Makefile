PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.DEFAULT_GOAL := help
.PHONY: help train train-gridworld test lint bench clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("bsdr_torch needs Python 3.11 or newer: make PYTHON=/path/to/python3.11") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

train: $(READY) ## train BSDR on recorded people, ending in a table, a checkpoint and the line that opens TensorBoard
	$(BIN)/python scripts/prepare_data.py
	$(BIN)/python scripts/train.py fit --config scripts/configs/kitchens.yaml

train-gridworld: $(READY) ## the same on simulated people in a GridWorld, whose true parameters are known
	$(BIN)/python scripts/train.py fit --config scripts/configs/gridworld.yaml

test: $(READY) ## run the tests
	$(BIN)/python -m pytest

lint: $(READY) ## check format, style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(READY) ## time and memory of the engine against named alternatives
	$(BIN)/python scripts/benchmark.py

clean: ## remove the virtual environment and caches (runs in lightning_logs stay)
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
