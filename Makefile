# Everything a newcomer needs. Each target sets up .venv by itself and reuses it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS ?= cpu,dev
COMMA := ,
# Named by the extras, so that asking for more of them installs them.
INSTALLED := $(VENV)/.installed-$(subst $(COMMA),-,$(EXTRAS))

.PHONY: setup demo test check bench clean

setup: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (about two minutes the first time)"
	@# Modules are compiled when they are first imported: compiling all of them takes a third of the installation.
	@$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

# From nothing to speech in half an hour; with all metrics: make demo EXTRAS=cpu,dev,eval
demo: setup
	$(BIN)/python -m myxtts demo $(DEMO)

test: setup
	$(BIN)/python -m pytest -n 3 --dist worksteal

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Every benchmark beside its peers (bench/peers.md); on a loaded machine it prints and concludes nothing.
bench: setup
	$(BIN)/python -m bench all $(BENCH)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
