# Two commands do all the set-up: `make demo` and `make test`. Python 3.11+, git and make are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WEIGHTS ?= ../shared/weights
CIFAR10 ?= ../shared/cifar10
LOGS ?= ../shared/logs
IMAGENET ?= ../shared/imagenet
RESNET50 ?= ../shared/resnet50.safetensors

.PHONY: demo test core lint format docs commands notebooks results release clean

demo: $(VENV)/.core-installed
	$(BIN)/smoothcert demo

test: $(VENV)/.installed lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist worksteal

# Removes the annexes from a copy of this folder, and runs the tests of the core there.
core: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python tools/core.py -n auto

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# What the demo needs: smoothcert without extras.
$(VENV)/.core-installed: pyproject.toml constraints.txt
	@echo "Installing into $(VENV): about 5 GB, most of it torch. This takes some minutes."
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --upgrade pip -c constraints.txt
	$(BIN)/pip install -q -c constraints.txt -e .
	touch $@

$(VENV)/.installed: $(VENV)/.core-installed
	$(BIN)/pip install -q -c constraints.txt -e '.[vision,hf,onnx,ray,plot]' --group test --group lint
	touch $@

# The tools that build the site are installed only here: no test needs them.
$(VENV)/.docs-installed: $(VENV)/.installed
	$(BIN)/pip install -q -c constraints.txt --group docs
	touch $@

docs: $(VENV)/.docs-installed commands
	$(BIN)/mkdocs build --quiet --strict
	@echo "Open site/index.html."

commands: $(VENV)/.installed
	$(BIN)/typer smoothcert.cli utils docs --name smoothcert --title Commands --output docs/reference/commands.md

# Executes the notebooks of examples/ in place.
notebooks: $(VENV)/.installed
	$(BIN)/pip install -q -c constraints.txt --group notebooks
	$(BIN)/python tools/notebooks.py

# Runs the experiments that can run here and are not current, and writes their numbers into README and docs.
results: $(VENV)/.installed
	$(BIN)/python -m benchmarks --weights $(WEIGHTS) --data $(CIFAR10) --logs $(LOGS) --imagenet $(IMAGENET) \
		--resnet50 $(RESNET50)
	$(BIN)/python -m benchmarks render

# Builds sdist and wheel into dist/, and uses the wheel in an empty environment without extras.
release:
	.ci/wheel

clean:
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache .hypothesis
