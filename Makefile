# `make help` lists the targets. All is made in this folder (.venv/, .cache/, runs/), but compiled
# programs, which are kept in the user's cache folder.
# PYTHON=...       the interpreter that makes .venv (default: the first suitable one found)
# PLATFORM=...     where tests compute: cpu, or cuda or tpu, whose JAX is installed then
# PYTEST_ARGS=...  what every pytest call gets (default: two processes), for example PYTEST_ARGS="-x -k warp"

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?=
PYTEST_ARGS ?= -n 2 --dist worksteal
PLATFORM ?= cpu
VENV := .venv
BIN := $(VENV)/bin
REQUIREMENTS := pyproject.toml $(wildcard flowjax_inv/native/*.[ch] constraints/*.txt)
# Runs an interpreter and succeeds if it can make this project's environment.
SUITABLE := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))

# One installation: $(1) is the extra. The versions are those of constraints/ for the interpreter's Python.
define install
version=$$($(BIN)/python -c 'import sys; print("{}.{}".format(*sys.version_info[:2]))') && \
$(BIN)/python -m pip install -qq --disable-pip-version-check --no-input \
	-c constraints/py$$version.txt -e ".[$(1)]" && \
touch $@
endef

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s%s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/.ready  ## train on Mario-Iggy and write runs/mario_iggy/report.html
	@$(BIN)/python -m experiments.run --config=experiments/mario_iggy.py --workdir=runs/mario_iggy

.PHONY: test
test: $(VENV)/.ready $(if $(filter-out cpu,$(PLATFORM)),$(VENV)/.ready-$(PLATFORM))  ## all tests
	@TEST_PLATFORM=$(PLATFORM) $(BIN)/python -m pytest $(PYTEST_ARGS)

.PHONY: check
check:  ## format, lint, types and the fast tests
	@$(MAKE) --no-print-directory --jobs=2 lint fast

.PHONY: fast
fast: $(VENV)/.ready-dev
	@$(BIN)/python -m pytest -m "not slow" $(PYTEST_ARGS)

.PHONY: lint
lint: $(VENV)/.ready-dev  ## format, lint and types only
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright

.PHONY: format
format: $(VENV)/.ready-dev  ## rewrite the code in the project's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: setup
setup: $(VENV)/.ready-dev  ## make .venv with everything the other targets need

.PHONY: card
card: $(VENV)/.ready  ## nine minutes at an accelerator: limits, laws, speed, training; into runs/card/
	@$(BIN)/python -m benchmarks.card --minutes 9 $$([ -e runs/card/ends.json ] && echo --resume || echo --out) runs/card

.PHONY: dist
dist: $(VENV)/.ready-dev  ## the wheel (the library alone) and its sources, in dist/
	@rm -rf build dist
	@$(BIN)/python -m build -q --outdir dist .
	@ls dist

.PHONY: clean
clean:  ## remove what make made, except runs/
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache build dist *.egg-info flowjax_inv/native/_library*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.ready: $(REQUIREMENTS) | $(BIN)/python
	@echo "setting up $(VENV): installing JAX and the rest (once, a few minutes)"
	@$(call install,test)
	@echo "setting up $(VENV): done"

$(VENV)/.ready-dev: $(VENV)/.ready
	@echo "setting up $(VENV): installing ruff and pyright"
	@$(call install,dev)

$(VENV)/.ready-cuda $(VENV)/.ready-tpu: $(VENV)/.ready-%: $(VENV)/.ready
	@echo "setting up $(VENV): installing JAX for $*"
	@$(call install,$*)

# An interpreter counts only if it runs: version managers put names on PATH that fail when called.
$(BIN)/python:
	@for python in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
		if "$$python" -c '$(SUITABLE)' >/dev/null 2>&1; then \
			echo "setting up $(VENV) with $$("$$python" -V)"; \
			rm -rf $(VENV) && "$$python" -m venv $(VENV); \
			exit; \
		fi; \
	done; \
	echo "make: no Python 3.11, 3.12 or 3.13 that runs and has venv was found; name one: make PYTHON=/path/to/python3" >&2; \
	exit 1
