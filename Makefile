# Two commands matter: `make test` and `make demo`. Each sets up what it needs and, the second time, installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Suites with a target of their own.
APART := --ignore tests/integrations --ignore tests/distributed --ignore tests/browser/long --ignore tests/ray_cluster

.PHONY: test coverage integrations distributed ray browsers faults networks-table demo docs notebooks lint bench browser firefox wheel smoke sbom hashes clean

test: $(READY) browser
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 $(APART)

# The same with the share of lines that ran; counting them takes half as long again.
coverage: $(READY) browser
	$(BIN)/pytest -n 2 --cov --cov-report=term:skip-covered $(APART)

# Networks that people use, with every method, trained and exported; Lightning, Accelerate, Trainer and loggers. Some minutes.
# SHORT=1 leaves the two large tables of networks out.
integrations: $(READY)
	$(BIN)/pytest -n 2 tests/integrations $(if $(SHORT),--ignore tests/integrations/test_networks.py --ignore tests/integrations/test_export_grid.py)

# Several processes that train one network, against one process. Some two minutes on two cores.
distributed: $(READY)
	$(BIN)/pytest tests/distributed

# Independent trainings on a Ray cluster of two nodes on this machine, one of which is killed. A minute on two idle cores.
ray: $(READY)
	$(BIN)/pytest -rs tests/ray_cluster

# The studio in Firefox too, its pages compared with stored pictures, and every control and kind of run on every page.
# Some minutes; SHORT=1 leaves out dark Firefox and the controls. RENEW=1 stores the pictures anew: look at them.
browsers: $(READY) browser firefox
	RENEW=$(RENEW) $(BIN)/pytest tests/browser/long $(if $(SHORT),-k "not dark and not control and not kind and not understand")

# Faults on purpose: kills, full disks, damaged files, a wrong clock. Over an hour on two cores; SHORT=1 takes minutes.
# ONLY=kills,disk makes some. A campaign that was stopped goes on where it was. docs/reliability.md has the table.
comma := ,
faults: $(READY)
	$(BIN)/python tests/faults/campaign $(subst $(comma), ,$(ONLY)) $(if $(SHORT),--short)

# The table of docs/networks.md, from the same trials.
networks-table: $(READY)
	$(BIN)/python tests/integrations/write_table.py

demo: $(READY)
	$(BIN)/bayesify demo

# The documentation as a site, in build/site.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# The tutorials as notebooks, in build/notebooks.
notebooks: $(READY)
	$(BIN)/python packaging/notebooks.py build/notebooks

lint: $(READY)
	$(BIN)/ruff check --fix . ; $(BIN)/ruff format . ; $(BIN)/mypy

# Some forty minutes on two cores, with nothing else running: docs/results/speed.md and its JSON and figures.
bench: $(READY)
	$(BIN)/python studies/scripts/peers/install.py .bench-venv
	$(BIN)/python studies/scripts/speed.py

# The pages are tested in Debian's Chromium; where it cannot be installed those tests skip and say so.
browser:
	@command -v chromium >/dev/null || { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && \
	  { timeout 120 apt-get update -qq; timeout 300 apt-get install -y -qq --no-install-recommends chromium; } \
	  >/dev/null 2>&1; } || echo "no Chromium here: the browser tests will be skipped"

firefox:
	@command -v firefox-esr >/dev/null || command -v firefox >/dev/null || { command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ] && \
	  { timeout 120 apt-get update -qq; timeout 300 apt-get install -y -qq --no-install-recommends firefox-esr; } \
	  >/dev/null 2>&1; } || echo "no Firefox here: its tests will be skipped"

$(READY): pyproject.toml studies/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
ifdef HASHED
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement constraints-hashed.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable '.[dev]' --editable studies
else
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]' --editable studies
endif
	touch $@

# The same bytes each time: the dates in the wheel are those of the last commit, or of SOURCE_DATE_EPOCH.
wheel: $(READY)
	SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null || echo 1600000000)} \
	  $(BIN)/python -m build --outdir dist .

# A software bill of materials, and the page of licences.
sbom: $(READY)
	$(BIN)/python packaging/bill_of_materials.py build/sbom.json docs/licences.md

# The hashes of what constraints.txt pins, for `make test HASHED=1` (in a new .venv) and for the container.
hashes: $(READY)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/python packaging/hash_dependencies.py

# The wheel in an environment of its own, as a user would have it.
smoke: wheel
	$(PYTHON) -m venv .smoke-venv
	.smoke-venv/bin/python -m pip install --quiet --constraint constraints.txt dist/bayesify-*.whl
	.smoke-venv/bin/python packaging/smoke_test.py --quick

clean:
	rm -rf $(VENV) .bench-venv .smoke-venv .mypy_cache .ruff_cache .pytest_cache .coverage build dist
