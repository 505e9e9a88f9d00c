# Everything is done inside .venv, which is made on first use; only Python is needed beforehand.
#
#   make demo     the paper's synthetic experiment, made small, and its report: one to two minutes
#   make test     all checks: style, types, architecture, tests with coverage
#   make soak     long campaigns of kills and of fuzzing, and property tests with 500 examples each
#   make bench    compare speed with other libraries (see bench/README.md)

PYTHON ?= python3
PYTEST_ARGS ?=
ARGS ?=

# A worker takes whole modules, so that what a module's tests share is made once.
WORKERS := -n auto --dist loadscope --no-loadscope-reorder

BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo test soak bench lint format clean
.DEFAULT_GOAL := test

demo: $(INSTALLED)
	@rm -rf runs/demo
	$(BIN)/sartor reproduce synthetic --quick --out runs/demo

test: lint
	$(BIN)/python -m pytest $(WORKERS) --cov --cov-report=term $(PYTEST_ARGS)

soak: $(INSTALLED)
	$(BIN)/python -m pytest $(WORKERS) -m 'soak or hypothesis' --hypothesis-profile=soak $(PYTEST_ARGS)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED)
	$(BIN)/python bench/run.py $(ARGS)

clean:
	rm -rf .venv .coverage .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf bench/.envs build dist htmlcov
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { \
	    echo "$(PYTHON) is not there. Install Python 3.11 or later," \
	         "or name one: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "$(PYTHON) is $$($(PYTHON) -V 2>&1), and Sartor needs Python 3.11 or later." \
	         "Name one: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "$(PYTHON) cannot make virtual environments. On Debian and Ubuntu:" \
	         "sudo apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv .venv

# Touched last, so that an installation that failed half-way is taken up again.
$(INSTALLED): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@
