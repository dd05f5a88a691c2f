# `make demo` and `make test` need only Python >= 3.11 and a shell; both set everything up.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-arm test-long check format lint types layers smoke changed clean

demo: $(STAMP)
	$(BIN)/optc compile examples/models/pycode --recipe int8-fused -o artifacts/pycode-int8-fused \
	  --eval-text examples/text/code_heldout.jsonl --force
	$(BIN)/optc run artifacts/pycode-int8-fused --prompt "def fib(n):" --max-tokens 64

# Compiled once: hundreds of commands that tests start would each compile what they import. pytest keeps
# its rewritten asserts, even where the environment wants no bytecode: they are half of a collection.
test: $(STAMP) lint types layers
	$(BIN)/python -m compileall -q optc passes backends benchmarks tests
	PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m "not long"

# What seldom changes: benchmarks' own tests, fuzzing of every format, and rows of tables whose values
# others show as well.
test-long: $(STAMP)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal -m long

# Kernels and engines for aarch64 under an emulator, and kernels for macOS, which takes hours.
# Installs it and a Python of aarch64 into .arm, by apt-get (Debian, Ubuntu) and pip; `make test` uses
# them if there.
test-arm: $(STAMP)
	$(BIN)/python -m tests.arm.install
	OPTC_TEST_ARM_ENGINES=1 $(BIN)/python -m pytest tests/arm
	for system in linux macos; do \
	  OPTC_TEST_ARM=$$system $(BIN)/python -m pytest -n 2 --dist worksteal \
	    tests/backends/tvm/kernels tests/backends/tvm/test_schedule_kernels.py || exit; \
	done

# Before every commit, two to three minutes: what machines can judge, the main job, and the tests of
# what differs from BASE. `make check BASE=main` takes in what was committed since.
BASE ?= HEAD
check: lint types layers smoke changed

smoke: $(STAMP)
	$(BIN)/python -m pytest tests/end_to_end/test_smoke.py

changed: $(STAMP)
	tests=$$($(BIN)/python -m tests.changed $(BASE)) && \
	  { [ -z "$$tests" ] || $(BIN)/python -m pytest -n 2 --dist worksteal $$tests; }

format: $(STAMP)
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

lint: $(STAMP)
	$(BIN)/ruff format --check . && $(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy -p optc -p benchmarks

layers: $(STAMP)
	$(BIN)/lint-imports

# torch first and by version: a later resolve then keeps that build.
$(STAMP): pyproject.toml setup.py
	$(PYTHON) -c 'import sys; sys.exit("optc needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable ".[compile,dev]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .hypothesis
