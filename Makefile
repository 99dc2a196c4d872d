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

.PHONY: run shaders wheel libcrossinfer test test-slow fuzz lint clean

run: $(VENV)/installed
	@$(BIN)/crossinfer demo-model >/dev/null
	@$(BIN)/crossinfer run $(ARGS) "$(PROMPT)"

# Compiles the HLSL kernels into the cache; fetches the compiler first where it is missing.
shaders: $(VENV)/installed
	@$(BIN)/python -m crossinfer.kernels.build

# A wheel that carries the compiled shaders, so that its users need no compiler.
wheel: $(VENV)/installed
	@$(BIN)/python scripts/build_wheel.py dist

# The library for hosts that aren't Python, with its header (docs/embedding.md).
libcrossinfer: $(VENV)/installed
	@scripts/install_compiler.sh $(BIN)/python
	@$(BIN)/python -m pip install --quiet --editable '.[embedding]'
	@$(BIN)/python -m crossinfer.embedding.build build/libcrossinfer

test: lint shaders
	@scripts/install_vulkan.sh
	@scripts/install_compiler.sh $(BIN)/python
	@$(BIN)/crossinfer demo-model >/dev/null
	$(BIN)/python -m pytest

test-slow: $(VENV)/tested shaders
	@scripts/install_vulkan.sh
	@scripts/install_compiler.sh $(BIN)/python
	@$(BIN)/crossinfer demo-model >/dev/null
	$(BIN)/python -m pytest -m "slow or not slow"

# Opens model files with random changes; stops at anything that is not a plain sentence.
SECONDS ?= 600
fuzz: $(VENV)/tested
	$(BIN)/python -m tests.fuzz_files --seconds $(SECONDS)

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
