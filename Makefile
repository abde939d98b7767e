# Two commands do all the set-up: `make demo` and `make test`. Python 3.11+, git and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOGS ?= ../shared/logs

.PHONY: demo test lint format docs paper clean

demo: $(VENV)/.installed
	$(BIN)/smoothcert demo

test: $(VENV)/.installed lint
	$(BIN)/pytest

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing into $(VENV): some 6 GB, torch above all; minutes, most of them for the download."
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip -c constraints.txt
	$(BIN)/pip install -q -c constraints.txt -e '.[vision,hf,onnx,ray]' --group test --group lint
	touch $@

docs: $(VENV)/.installed
	$(BIN)/python tools/reference.py

paper: $(VENV)/.installed
	$(BIN)/python docs/paper/reproduce.py $(LOGS)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis
