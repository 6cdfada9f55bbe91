# Two commands matter: `make test` and `make demo`. Each sets up what it needs and, the second time, installs nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: test coverage integrations distributed networks-table demo docs notebooks lint bench browser wheel smoke sbom clean

test: $(READY) browser
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --ignore tests/integrations --ignore tests/distributed

# The same with the share of lines that ran; counting them takes half as long again.
coverage: $(READY) browser
	$(BIN)/pytest -n 2 --cov --cov-report=term:skip-covered --ignore tests/integrations --ignore tests/distributed

# Networks that people use, with every method, trained and exported; Lightning, Accelerate, Trainer and loggers. Some minutes.
# SHORT=1 leaves the two large tables of networks out.
integrations: $(READY)
	$(BIN)/pytest -n 2 tests/integrations $(if $(SHORT),--ignore tests/integrations/test_networks.py --ignore tests/integrations/test_export_grid.py)

# Several processes that train one network, against one process. Some two minutes on two cores.
distributed: $(READY)
	$(BIN)/pytest tests/distributed

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

$(READY): pyproject.toml studies/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]' --editable studies
	touch $@

wheel: $(READY)
	$(BIN)/python -m build --outdir dist .

# A software bill of materials, and the page of licences.
sbom: $(READY)
	$(BIN)/python packaging/bill_of_materials.py build/sbom.json docs/licences.md

# The wheel in an environment of its own, as a user would have it.
smoke: wheel
	$(PYTHON) -m venv .smoke-venv
	.smoke-venv/bin/python -m pip install --quiet --constraint constraints.txt dist/bayesify-*.whl
	.smoke-venv/bin/python packaging/smoke_test.py --quick

clean:
	rm -rf $(VENV) .bench-venv .smoke-venv .mypy_cache .ruff_cache .pytest_cache .coverage build dist
