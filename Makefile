PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --no-compile
# Three test processes for two cores: tests wait for servers, children and clocks a quarter of the
# time. One thread each: figures that do not depend on a thread count.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist worksteal

.PHONY: help demo test check docs browser bench bench-serve experiments soak clean

help:
	@echo "make demo         simulate a shop, train on its log, recommend"
	@echo "make test         lint, types, tests and doctests: what a change must pass"
	@echo "make check        lint and types only"
	@echo "make docs         the site, in build/docs/index.html; needs no network to be read"
	@echo "make browser      install Debian's Chromium, which the browser tests drive"
	@echo "make bench        measure speed and memory against named peers, and the commit before"
	@echo "make bench-serve  only the server under load, for two minutes"
	@echo "make soak         faults at random, until SOAK_KILLS=1000 kills or for SOAK_MINUTES=60"
	@echo "make experiments  run the longer measurements that the docs quote (hours)"
	@echo "make clean        remove .venv and all caches"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("widemax needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; try make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (a minute or two, once) ..."
	@# pip works on one core: two at once, each with every second of the pinned versions. What they
	@# leave out or fail at, here or on another system, is the third's, who goes by what is asked for.
	@for half in 0 1; do \
		awk -v half=$$half '!/^(#|implicit=|tensorflow|threadpoolctl=)/ && NR % 2 == half' \
			constraints.txt > $(VENV)/half-$$half.txt; \
		$(PIP) --no-deps -r $(VENV)/half-$$half.txt & \
	done; wait
	$(PIP) -c constraints.txt -e '.[dev]'
	@# On all cores, which pip does not use, and without most of what is never imported here.
	@$(BIN)/python -m compileall -qq -j 0 \
		-x '/(tests|testing/_internal|transformers/models|databricks|mypyc?|pip|setuptools)/' \
		$(VENV)/lib || true
	@touch $@

demo: $(STAMP)
	$(BIN)/widemax demo

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# mypy works on one core for most of a minute: beside the first tests. One that fails does not keep
# the others from running, and what it says comes at the end.
test: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/mypy > $(VENV)/types.txt 2>&1 & types=$$!; \
	$(PYTEST); tests=$$?; \
	wait $$types; types=$$?; \
	echo "$(BIN)/mypy"; cat $(VENV)/types.txt; \
	[ $$tests = 0 ] && [ $$types = 0 ]

# A warning is an error: a link that leads nowhere, a page that no table of contents names.
docs: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build -q -W --keep-going -b html -d build/doctrees docs build/docs
	@echo "open build/docs/index.html"

# Without a browser, or the right to install one, the browser tests are skipped and say so.
browser:
	@if command -v chromium >/dev/null; then echo "Chromium is here"; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; \
	else echo "No apt-get, or not root: install Chromium by hand to run the browser tests"; fi

# Each script of a folder, then a last command; one that misses a bar does not keep the others from
# running.
define run_all
	@mkdir -p $(1)/results
	@missed=; for script in $(1)/[!_]*.py; do \
		echo "== $$script"; \
		$(BIN)/python $$script --check --json $(1)/results/$$(basename $$script .py).json \
			|| missed="$$missed $$script"; \
	done; \
	$(2) \
	if [ -n "$$missed" ]; then echo "missed a bar or failed:$$missed"; exit 1; fi
endef

bench: $(STAMP)
	$(call run_all,benchmarks,$(BIN)/python benchmarks/_page.py --out benchmarks/results/page.md;)

bench-serve: $(STAMP)
	@mkdir -p benchmarks/results
	$(BIN)/python benchmarks/serving.py --check --json benchmarks/results/serving.json

SOAK_MINUTES ?= 60
SOAK_KILLS ?= 1000

soak: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.soak --minutes $(SOAK_MINUTES) --kills $(SOAK_KILLS)

experiments: $(STAMP)
	@echo "== the tests of crashes and damaged files, at length"
	WIDEMAX_KILLS=50 WIDEMAX_FUZZ_EXAMPLES=2000 OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 tests/runs \
		tests/vectors tests/training tests/storage tests/data tests/vocabulary
	$(call run_all,experiments)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
