# Two commands: `make demo` shows the whole service at work, `make test` proves it piece by piece.
# Both do all the set-up: a virtual environment in .venv with every package pinned by hash.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DRIFT  := $(BIN)/python -m benchmarks.drift
# One process a core; tests that share the broker stay together on one of them.
PYTEST := $(BIN)/python -m pytest -q -n auto --dist loadgroup

.PHONY: help setup demo demo-vllm up test test-thorough test-fast test-browser test-vllm test-label-studio lint format bench results docs lock clean
.DEFAULT_GOAL := help

help:            ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP)  ## create .venv with the locked packages

$(STAMP): requirements.lock pyproject.toml deploy/ucci_demo/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e deploy/ucci_demo
	touch $@

demo: $(STAMP)   ## run the whole service on this machine, drift and a killed router included
	$(BIN)/ucci-stream demo

demo-vllm: $(STAMP) ## the same on two real vLLM servers (installs them, 3 GB)
	$(BIN)/ucci-stream demo --models vllm

up: $(STAMP)     ## the same stack without traffic, until Ctrl-C
	$(BIN)/ucci-stream up

test: lint       ## lint, then every test that needs no extra install
	$(PYTEST) --durations=20 -m "not vllm and not label_studio and not thorough"

test-thorough: lint ## the same with more drawn examples and the corners that take minutes
	HYPOTHESIS_PROFILE=thorough $(PYTEST) -m "not vllm and not label_studio"

test-fast: $(STAMP) ## unit tests alone: no broker, no kill storms
	$(PYTEST) -m "not broker and not browser and not slow and not thorough and not vllm and not label_studio"

test-browser: $(STAMP) ## the page in a real Chromium (part of `make test`; installs Debian's where root may)
	$(BIN)/python -m pytest -q -m browser tests/browser

test-vllm: $(STAMP) ## the protocol's conformance suite against real vLLM servers (installs them, 3 GB)
	$(BIN)/python -m pytest -q -m vllm tests/conformance

test-label-studio: $(STAMP) ## label requests and labels against a real Label Studio (installs it, 1 GB)
	$(BIN)/python -m pytest -q -m label_studio tests/deploy/label_studio

lint: $(STAMP)   ## ruff, strict types, import rules, spelling
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

format: $(STAMP) ## let ruff mend what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(STAMP)  ## speed as ratios against baselines in the same run
	$(BIN)/python -m benchmarks

results: $(STAMP) ## the benchmarks of the method, one to two hours on 2 cores; writes docs/results anew
	$(BIN)/python -m benchmarks.paper
	$(BIN)/python -m benchmarks.recorded --seed 11
	$(BIN)/python -m benchmarks.handoff --queries 1000 --seed 17
	$(DRIFT) --seeds $$(seq 111 120) --policies plain frontier ours-no-margin --out docs/results/drift
	$(DRIFT) --seeds $$(seq 131 140) --policies ours --out docs/results/drift-current
	$(DRIFT) --families ablations --seeds $$(seq 151 160) --policies ablations --out docs/results/ablations
	$(DRIFT) --families messy --seeds 141 142 --queries 60000 --policies ours --out docs/results/messy

docs: $(STAMP)   ## write the generated documents anew
	$(BIN)/python -m tools.docs.documents
	$(BIN)/python -m tools.docs.metrics_page
	$(BIN)/python -m tools.docs.notebooks

lock: $(STAMP)   ## resolve requirements.lock anew (hashes, no addresses)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --no-header \
		--extra api --extra river --extra tracing --group dev \
		pyproject.toml deploy/ucci_demo/pyproject.toml -o requirements.lock

clean:           ## remove what was built here
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
