"""Every example in a docstring of the package is run. The modules are found by searching the source for `>>>`."""

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
EXAMPLE = re.compile(r"^ *>>> ", re.MULTILINE)


def _examples() -> dict[str, int]:
    """How many examples each module has, by the module's name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if examples := len(EXAMPLE.findall(path.read_text(encoding="utf-8"))):
            found[name] = examples
    return found


EXAMPLES = _examples()


def _import(name: str):
    """The module, or a skipped test where it needs a package that is not installed here."""
    try:
        return import_module(name)
    except ImportError as error:
        if (error.name or "").startswith("smoothcert"):
            raise
        pytest.skip(f"{name} cannot be imported here: {error}")


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_in_docstrings_hold(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = _import(name)
    found = sum(len(test.examples) for test in doctest.DocTestFinder().find(module))
    assert found == EXAMPLES[name], "doctest does not look where some of the examples are"
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0


def test_examples_are_found():
    assert "smoothcert.noises.gaussian" in EXAMPLES
