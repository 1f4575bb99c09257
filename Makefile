# Two commands do all the set-up themselves: make train, make test.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed
NATIVE = src/rnd/envs/native
CPP = $(wildcard $(NATIVE)/*.?pp $(NATIVE)/*.inc tests/envs/native/*.cpp)

.PHONY: train test test-fast test-long check format docs clean

train: $(STAMP)
	$(BIN)/rnd train

test: $(STAMP) check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# What one runs while working: the algorithm and its parts, without processes, emulators, pages and plugins.
FAST = bonus checkpoint config data device foundation metrics models training test_imports.py test_docs.py test_stable.py
SLOW = training/test_overlap.py training/test_evaluation.py checkpoint/test_export.py config/test_components.py
test-fast: $(STAMP)
	$(BIN)/ruff check .
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 $(FAST:%=tests/%) $(SLOW:%=--ignore=tests/%)

test-long: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m long

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CPP)

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/clang-format -i $(CPP)

docs: $(STAMP)
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

$(STAMP): pyproject.toml $(CPP) $(NATIVE)/opcodes.def $(NATIVE)/CMakeLists.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) build
