# Each command sets up all it needs: `make serve` runs the service here, `make test` checks everything that needs no
# container, `make images` builds the images and checks them, `make images-gateway` only the smallest, in two minutes.
SHELL := /bin/bash
export VENV ?= $(CURDIR)/.venv
BIN := $(VENV)/bin

.PHONY: serve test images images-gateway install lint

serve:
	@scripts/install.sh serve
	@scripts/serve.sh

test: lint
	$(BIN)/python -m pytest

images:
	@scripts/install.sh serve
	@scripts/images.sh

images-gateway:
	@scripts/install.sh serve
	@scripts/images.sh gateway

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	scripts/lint-shell.sh

install:
	@scripts/install.sh test
