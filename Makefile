# Needs Python 3.11 or newer and a package index; everything is installed into .venv/.
# PYTHON=/path/to/python makes it with that interpreter and no other.

PY := .venv/bin/python
PYTHONS := $(or $(PYTHON),python3.11 python3)
PACKAGE := setup.py pyproject.toml rnnmem/version.py
RNNMEM_FUZZ_CASES ?= 2000
TEST_PROCESSES ?= auto

.PHONY: demo test test-slow coverage lint format fuzz prove conformance conformance-table \
  benchmark docs dist test-versions clean

demo: .venv/ready-nmt
	$(PY) -m models.nmt.train --demo $(DEMO_FLAGS)

# A process for each core.
test: lint
	$(PY) -m pytest -n $(TEST_PROCESSES) --dist=worksteal -m "not slow" $(TEST_FLAGS)

# The tests that take seconds each; continuous integration runs them too.
test-slow: .venv/ready-test
	$(PY) -m pytest -n $(TEST_PROCESSES) --dist=worksteal -m slow $(TEST_FLAGS)

# Which lines no test runs; what runs in a process of its own is not counted.
coverage: .venv/ready-test
	$(PY) -m pytest -n $(TEST_PROCESSES) --cov=rnnmem --cov-report=term:skip-covered $(TEST_FLAGS)

lint: .venv/ready-test
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

format: .venv/ready-test
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

fuzz: .venv/ready-test
	RNNMEM_FUZZ_CASES=$(RNNMEM_FUZZ_CASES) $(PY) -m pytest -m fuzz $(TEST_FLAGS)

# The tests ask every program the main properties; this asks it all that fit it.
conformance: .venv/ready-test
	RNNMEM_CONFORMANCE=1 $(PY) -m pytest tests/conformance $(TEST_FLAGS)

# All that is proven by going through every case, and the lemmas; prints how many cases there were.
prove: .venv/ready-test
	$(PY) -m pytest -q tests/proofs/test_lemmas.py
	$(PY) -W ignore -m tests.proofs $(PROVE_FLAGS)

conformance-table: .venv/ready-test
	RNNMEM_CONFORMANCE=1 $(PY) -m tools.conformance_table

benchmark: .venv/ready-nmt
	$(PY) -m models.nmt.benchmark $(BENCHMARK_FLAGS)

# What of docs/ is made from the sources and the figures, and the site: site/index.html, which needs
# no network. A link that leads nowhere, or a page that is in no menu, is an error.
docs: .venv/ready-test
	$(PY) tools/api_reference.py
	$(PY) tools/error_list.py
	$(PY) tools/pass_table.py
	$(PY) tools/figures.py
	$(PY) -W ignore -m tools.step_net_picture
	$(PY) -m sphinx -q -W --keep-going docs site

# Wheel and sdist, checked, installed afresh and used.
dist: .venv/ready-dist
	$(PY) tools/dist.py

# Every TensorFlow and Python that rnnmem is tested on, each in an environment of its own.
test-versions: $(PY)
	$(PY) tools/versions.py $(VERSION_FLAGS)

clean:
	rm -rf .venv .venv-versions build dist site *.egg-info .pytest_cache .hypothesis .ruff_cache .mypy_cache .coverage
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A half-made environment is removed, so that the next try starts afresh.
$(PY):
	@for python in $(PYTHONS); do \
	  "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	  echo "$$python -m venv .venv"; \
	  "$$python" -m venv .venv && exit 0; \
	  rm -rf .venv; \
	  echo "error: $$python cannot make a virtual environment;" \
	    "install its venv module (Debian: python3.11-venv)" >&2; \
	  exit 1; \
	done; \
	echo "error: no Python 3.11 or newer found (tried: $(PYTHONS));" \
	  "install one, or name it: make PYTHON=/path/to/python" >&2; \
	exit 1

.venv/ready-nmt: $(PACKAGE) | $(PY)
	$(PY) -m pip install --disable-pip-version-check -e '.[tf,nmt]'
	@touch $@

# The test extra contains what the model needs, so a demo after the tests installs nothing.
.venv/ready-test: $(PACKAGE) | $(PY)
	$(PY) -m pip install --disable-pip-version-check -e '.[tf,test]'
	@touch .venv/ready-nmt $@

.venv/ready-dist: $(PACKAGE) | $(PY)
	$(PY) -m pip install --disable-pip-version-check -e '.[dist]'
	@touch $@
