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

# Direct3D 12 needs processes of their own on Linux, since libvkd3d brings its own C library. Two at
# once, since nearly all of their time is the driver's compiler, which has one thread. Where it cannot
# be had, that is said, and the rest counts (77).
TEST_D3D12 = $(MAKE) --no-print-directory --jobs=2 --output-sync=target d3d12-kernels d3d12-backend
PYTEST_D3D12 = TEST_DEVICES=d3d12 scripts/d3d12-run $(BIN)/python -m pytest $(SELECTED)
SKIPPED_D3D12 = { [ $$? -eq 77 ] && echo "Tests of Direct3D 12 were skipped." >&2; }
ALL = -m "slow or not slow"

.PHONY: run shaders wheel libcrossinfer test test-slow d3d12-kernels d3d12-backend fuzz lint clean

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
	@scripts/d3d12-run true || [ $$? -eq 77 ]
	@$(BIN)/crossinfer demo-model >/dev/null
	$(BIN)/python -m pytest
	@$(TEST_D3D12)

test-slow: $(VENV)/tested shaders
	@scripts/install_vulkan.sh
	@scripts/install_compiler.sh $(BIN)/python
	@scripts/d3d12-run true || [ $$? -eq 77 ]
	@$(BIN)/crossinfer demo-model >/dev/null
	$(BIN)/python -m pytest $(ALL)
	@$(TEST_D3D12) SELECTED='$(ALL)'

d3d12-kernels:
	@$(PYTEST_D3D12) tests/conformance || $(SKIPPED_D3D12)

d3d12-backend:
	@$(PYTEST_D3D12) tests/backends/d3d12 tests/engine/test_slices.py || $(SKIPPED_D3D12)

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
