# The whole road, and the checks. `make demo` and `make test` set up .venv by themselves.

PYTHON ?= python3
BIN := .venv/bin
RUN := runs/dates
export TF_CPP_MIN_LOG_LEVEL ?= 3
export KERAS_BACKEND ?= tensorflow

.PHONY: demo test test-slow test-hostile test-nightly lint bench docs tutorial clean

# The versions of requirements.lock, so that everybody gets the same environment.
PIP := $(BIN)/pip install --disable-pip-version-check --progress-bar on -c requirements.lock

# What the demo needs.
.venv/demo: pyproject.toml requirements.lock
	@echo "Setting up .venv for the demo: 2.5 GB, 1 to 3 minutes, once ..."
	$(PYTHON) -c 'import sys; sys.exit(None if (3, 11) <= sys.version_info < (3, 14) else "Python 3.11, 3.12 or 3.13 is needed: make PYTHON=python3.13 ...")'
	$(PYTHON) -m venv .venv
	$(PIP) -e '.[train]'
	touch $@

# What tests, lint, documentation and benchmarks need in addition.
.venv/ready: .venv/demo
	@echo "Adding the tools of developers to .venv: 1 GB, 1 to 3 minutes, once ..."
	$(PIP) -e '.[dev]'
	touch $@

demo: .venv/demo
	@echo "The demo trains, evaluates and exports a model: about 3 minutes on 2 cores."
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh training/demo.sh $(RUN)

test: .venv/ready
	@echo "The tests take about 11 minutes on 2 cores."
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadscope

test-slow: .venv/ready
	$(BIN)/python -m pytest -m slow -n auto --maxprocesses 4 --dist loadscope

# Up to an hour.
test-hostile: .venv/ready
	$(BIN)/python -m pytest -m hostile -n auto --maxprocesses 4

# One to two hours. Downloads Hugging Face's transformers, PyTorch and OpenNMT-tf (3 GB) to compare with.
test-nightly: .venv/ready
	$(BIN)/python -m pytest -m nightly -n auto --maxprocesses 2

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Decoding speed of the export, beside whichever peers .venv has: see benchmarks/README.md.
bench: .venv/ready
	$(BIN)/python -m benchmarks.decoding $(BENCH)

# The documentation as a site, without a warning: build/docs/index.html.
docs: .venv/ready
	$(BIN)/sphinx-build -q -W --keep-going -n -c docs . build/docs
	@echo "build/docs/index.html"

# Runs the notebooks, and keeps what they show.
tutorial: .venv/ready
	$(BIN)/python docs/tutorial/run.py

clean:
	rm -rf $(RUN) exported/$(notdir $(RUN))
