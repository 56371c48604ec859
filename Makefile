# make demo | test | test-long | bench | vllm-env | test-vllm | wheel | clean
TORCH ?= 2.14.1
PYTHON ?= python3
VENV ?= .venv
VLLM_VENV ?= .venv-vllm
DEMO ?= results/demo
BIN := $(VENV)/bin
BACKENDS := contiguous,contiguous_expandable,bucketed,paged

.PHONY: demo test test-long bench vllm-env test-vllm check wheel clean

demo: $(VENV)/.installed
	rm -rf $(DEMO)
	$(BIN)/fragbench matrix experiment=demo backend=$(BACKENDS) out=$(DEMO)
	$(BIN)/fragbench report $(DEMO)

test: check
	$(BIN)/python -m pytest -n auto -m "not long"

test-long: check
	$(BIN)/python -m pytest -n auto

bench: $(VENV)/.installed-dev
	$(BIN)/python -m pytest tests/benchmarks -o python_files="bench_*.py" \
		-o python_functions="bench_*" --benchmark-only --benchmark-columns=median,iqr,rounds

vllm-env: $(VLLM_VENV)/.installed

test-vllm: $(VLLM_VENV)/.installed
	$(VLLM_VENV)/bin/python -m pytest tests/vllm -o python_files="vllm_*.py"

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

wheel: $(VENV)/.installed-dev
	$(BIN)/python -m build --wheel

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet "torch==$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

# vLLM pins its own PyTorch, so it has an environment of its own; about 10 GB.
$(VLLM_VENV)/.installed: pyproject.toml
	test -x $(VLLM_VENV)/bin/python || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet --editable ".[vllm]" pytest
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

clean:
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
