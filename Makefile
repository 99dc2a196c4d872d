# The two commands: `make run` answers a prompt with the demo model, `make test` checks everything.
# Both make .venv and install what they need first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROMPT ?= Why is the sky blue?
ARGS ?=

# Independent dispatches of the reference device run on its own threads; BLAS threads would fight
# with them. (The command line sets this itself.)
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: run test test-slow lint clean

run: $(VENV)/installed
	@$(BIN)/crossinfer demo-model >/dev/null
	@$(BIN)/crossinfer run $(ARGS) "$(PROMPT)"

test: lint
	@$(BIN)/crossinfer demo-model >/dev/null
	$(BIN)/python -m pytest

test-slow: $(VENV)/tested
	@$(BIN)/crossinfer demo-model >/dev/null
	$(BIN)/python -m pytest -m "slow or not slow"

lint: $(VENV)/tested
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:
	rm -rf $(VENV) build dist

$(VENV)/installed: pyproject.toml scripts/make_venv.sh
	@scripts/make_venv.sh $(PYTHON) $(VENV)
	@$(BIN)/python -m pip install --quiet --editable .
	@touch $@

$(VENV)/tested: $(VENV)/installed
	@$(BIN)/python -m pip install --quiet --group test
	@touch $@
