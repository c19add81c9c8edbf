# Everything runs in .venv; a fresh clone on a fresh machine needs Python >= 3.11 with pip, and make.
# No target needs a package of the system.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The formats' own software lives apart: its pins are not ours.
CVENV := .venv-conformance
CSTAMP := $(CVENV)/.installed
# roverd is in no registry.  ROVERD=/path/to/red-rover/format/src holds the recorder against it too.
ROVERD ?=
DEMO_S ?= 5
# Tests that run at a time.
JOBS ?= 2

.PHONY: demo test test-campaign test-long lint conformance bench clean

# Debian's Python comes without ensurepip; there the pip that is installed fills the environment.
define make_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	    "Python 3.11 or later is needed, this is " + sys.version.split()[0] + "; set PYTHON=...")'
	@$(PYTHON) -m venv $(1) 2>/dev/null || { rm -rf $(1) && $(PYTHON) -m venv --without-pip $(1) \
	    && $(PYTHON) -m pip --quiet --python $(1)/bin/python install pip; }
endef

$(STAMP): pyproject.toml constraints.txt
	$(call make_venv,$(VENV))
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,archives]'
	@touch $@

$(CSTAMP): pyproject.toml constraints.txt constraints-conformance.txt
	$(call make_venv,$(CVENV))
	$(CVENV)/bin/python -m pip install --quiet --constraint constraints.txt \
	    --constraint constraints-conformance.txt --editable '.[dev,archives,conformance]'
	@# Its own requirements ask for torch, which reading does not need.
	$(CVENV)/bin/python -m pip install --quiet --no-deps \
	    --constraint constraints-conformance.txt nvidia-ncore
	@touch $@

# Records the simulated sensors, holds the session against its format, and says where it lies.
demo: $(STAMP)
	$(BIN)/recorder run configs/demo.yaml --duration $(DEMO_S)
	@session=$$(ls -td demo/demo_*/ | head -n 1) && $(BIN)/recorder validate --deep $$session \
	    && $(BIN)/recorder info $$session && $(BIN)/recorder list demo

test: $(STAMP)
	$(BIN)/python -m pytest -q -n $(JOBS)

test-campaign: $(STAMP)
	$(BIN)/python -m pytest -q -n $(JOBS) -m campaign tests

test-long: $(STAMP)
	$(BIN)/python -m pytest -q -m long

# All of them, so that one run tells everything.
lint: $(STAMP)
	@status=0; for tool in 'ruff check .' 'ruff format --check .' mypy lint-imports; do \
	    echo "$$tool"; $(BIN)/$$tool || status=1; done; exit $$status

conformance: $(CSTAMP)
	PYTHONPATH=$(ROVERD) $(CVENV)/bin/python -m pytest -q -m conformance tests/conformance

bench: $(STAMP)
	$(BIN)/python -m benchmarks.rig

clean:
	rm -rf $(VENV) $(CVENV) build *.egg-info
	find recorder drivers tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
