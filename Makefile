# Each command sets up all it needs: `make serve` runs the service here, `make test` checks everything that needs no
# container, `make images` builds the images and checks them.
SHELL := /bin/bash
export VENV ?= $(CURDIR)/.venv
BIN := $(VENV)/bin

.PHONY: serve test images install lint

serve:
	@scripts/install.sh serve
	@scripts/serve.sh

test: lint
	$(BIN)/python -m pytest

images:
	@scripts/install.sh serve
	@scripts/images.sh

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	scripts/lint-shell.sh

install:
	@scripts/install.sh test
