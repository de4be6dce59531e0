# Everything a newcomer needs. Each target sets up .venv by itself and reuses it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
COMMA := ,
# An environment keeps its extras: a stamp in it is named by them, and without EXTRAS the next target takes them again.
INSTALLED_EXTRAS := $(shell ls -t $(VENV)/.installed-* 2>/dev/null | head -n 1 | sed 's/.*\.installed-//; s/-/,/g')
DEFAULT_EXTRAS := cpu,dev
EXTRAS ?= $(or $(INSTALLED_EXTRAS),$(DEFAULT_EXTRAS))
CHOSEN := $(subst $(COMMA), ,$(EXTRAS))
INSTALLED := $(VENV)/.installed-$(subst $(COMMA),-,$(EXTRAS))
# Two builds of TensorFlow, which own the same files: one installed over the other is a mix of both.
OTHER_TENSORFLOW := $(if $(filter gpu,$(CHOSEN)),tensorflow-cpu,$(if $(filter cpu,$(CHOSEN)),tensorflow))
ifeq ($(sort $(filter cpu gpu,$(CHOSEN))),cpu gpu)
$(error EXTRAS is $(EXTRAS): cpu and gpu are two builds of TensorFlow, choose one)
endif

.PHONY: setup demo test check bench clean

setup: $(INSTALLED)
	@echo "Ready. Next: source $(BIN)/activate, then myxtts synth \"Hello there.\" --out hello.wav, or myxtts doctor"

$(INSTALLED): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@# The extras are remembered first, as out of date: an installation that was interrupted is done again.
	@rm -f $(VENV)/.installed-* && touch -t 197001020000 $@
	@if test -n "$(OTHER_TENSORFLOW)" && $(BIN)/python -m pip show --quiet $(OTHER_TENSORFLOW) 2>/dev/null; then \
		echo "Removing $(OTHER_TENSORFLOW), which extras $(EXTRAS) replace"; \
		$(BIN)/python -m pip uninstall --quiet --yes tensorflow tensorflow-cpu; fi
	@echo "Installing $(EXTRAS) into $(VENV) (about two minutes the first time)"
	@# Modules are compiled when they are first imported: compiling all of them takes a third of the installation.
	@$(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

# The built-in voice speaks, clones, and is trained: about ten minutes; with all metrics: make demo EXTRAS=cpu,dev,eval
demo: $(INSTALLED)
	$(BIN)/python -m myxtts demo $(DEMO)

test: $(INSTALLED)
	$(BIN)/python -m pytest -n 3 --dist worksteal

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Every benchmark beside its peers (bench/peers.md); on a loaded machine it prints and concludes nothing.
bench: $(INSTALLED)
	$(BIN)/python -m bench all $(BENCH)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
