# `make demo` and `make test` need only Python >= 3.11 and a shell; both set everything up.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check format lint types layers clean

demo: $(STAMP)
	$(BIN)/optc compile examples/models/pycode --recipe int8-fused -o artifacts/pycode-int8-fused \
	  --eval-text examples/text/code_heldout.jsonl --force
	$(BIN)/optc run artifacts/pycode-int8-fused --prompt "def fib(n):" --max-tokens 64

test: $(STAMP) check
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: lint types layers

format: $(STAMP)
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

lint: $(STAMP)
	$(BIN)/ruff format --check . && $(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy -p optc

layers: $(STAMP)
	$(BIN)/lint-imports

# torch first and by version: a later resolve then keeps that build.
$(STAMP): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("optc needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable ".[compile,dev]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis
