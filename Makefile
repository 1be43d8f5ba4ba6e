# Every step that a fresh machine with Python 3.11, make and the package registries needs stands here.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SEED ?=
HISTORIES ?= $(if $(SEED),1,300)
MINUTES ?= 15
OUT ?= load_tests/results
ROOMS := protocol client_sdk server estimator cli load_tests
CODE := $(ROOMS) tests bench examples

.DEFAULT_GOAL := help
.PHONY: help setup demo run test chaos check format bench bench-check bench-growth bench-peers soak crowd clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv with everything pinned in constraints.txt

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Dither needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup ## Run the whole service against 20,200 devices, print truth beside estimate
	$(BIN)/dither demo

run: setup ## Run the service with the example registry until Ctrl-C
	$(BIN)/dither serve

test: setup ## Run all tests
	$(BIN)/python -m pytest

chaos: setup ## Play 300 random histories of kills and faults; SEED=n plays one again, HISTORIES=n says how many
	DITHER_CHAOS=$(HISTORIES) DITHER_CHAOS_SEED=$(SEED) $(BIN)/python -m pytest -s tests/chaos/test_histories.py

check: setup ## Lint, types, and who may import whom
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## Format the code
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

bench: setup ## Measure, as ratios in one run, and write bench/results.json
	$(BIN)/python bench/run.py

bench-check: setup ## Measure again, fail where a row is over 25 % worse than in bench/results.json
	$(BIN)/python bench/run_check.py

bench-growth: setup ## Measure how time and memory grow with reports, values, metrics and cells; writes bench/GROWTH.md
	$(BIN)/python bench/growth.py

bench-peers: setup ## Measure research libraries of the field beside Dither, and write bench/results-peers.json
	$(BIN)/python bench/run_peers.py --python $(PYTHON)

soak: setup ## Load the service for MINUTES (15), watch its memory; writes OUT/soak.txt and soak.json
	mkdir -p $(OUT)
	$(BIN)/python -m dither_harness.soak --minutes $(MINUTES) --remembered 3000000 --out $(OUT)

crowd: setup ## Send three times its capacity at the service; writes OUT/crowd.txt and crowd.json
	mkdir -p $(OUT)
	$(BIN)/python -m dither_harness.crowd --out $(OUT)

clean: ## Remove .venv and everything built
	rm -rf $(VENV) .venv-peers build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
