# Two commands, each of which sets up all it needs: `make serve` runs the service here, `make test` checks everything.
SHELL := /bin/bash
export VENV ?= $(CURDIR)/.venv
BIN := $(VENV)/bin

.PHONY: serve test install lint

serve:
	@scripts/install.sh serve
	@scripts/serve.sh

test: lint
	$(BIN)/python -m pytest

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	scripts/lint-shell.sh

install:
	@scripts/install.sh test
