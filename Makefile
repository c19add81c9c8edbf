# Everything runs in .venv; a fresh clone on a fresh machine needs Python >= 3.11 and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test test-long lint conformance bench clean

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/recorder run configs/demo.yaml --duration 5
	$(BIN)/recorder list demo

test: $(STAMP)
	$(BIN)/python -m pytest -q

test-long: $(STAMP)
	$(BIN)/python -m pytest -q -m long

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV)
