# Two commands do all the set-up themselves: make train, make test.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed

.PHONY: train test test-long check format docs clean

train: $(STAMP)
	$(BIN)/rnd train

test: $(STAMP) check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

test-long: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m long

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

$(STAMP): pyproject.toml $(wildcard src/rnd/envs/native/*.?pp) src/rnd/envs/native/CMakeLists.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) build
