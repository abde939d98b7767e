"""Shows that the core works alone: removes the annexes from a copy, and runs the core's tests there.

The annexes are the protected modules of an import contract in pyproject.toml. A test file that
imports one of them is removed with it; single tests that use one have the marker `annexes`.

    python tools/core.py            # all tests of the core
    python tools/core.py tests/plans -x
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
_COPIED = ("src", "tests", "benchmarks", "pyproject.toml")
_TESTS = [
    "tests/data",
    "tests/denoisers",
    "tests/device",
    "tests/executors",
    "tests/models",
    "tests/noises",
    "tests/plans",
    "tests/runs",
    "tests/sampling",
    "tests/smoothed",
    "tests/statistics",
    "tests/tasks",
    "tests/test_agreement.py",
    "tests/test_files.py",
    "tests/test_registry.py",
    "tests/test_sigma.py",
]


def annexes() -> list[str]:
    """The modules that the core does without."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [contract] = [c for c in settings["contracts"] if c["type"] == "protected"]
    modules: list[str] = contract["protected_modules"]
    return modules


def remove_annexes(root: Path) -> None:
    """Remove the annexes, and the test files that import them."""
    for module in annexes():
        place = root / "src" / module.replace(".", "/")
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.with_suffix(".py").unlink()
    names = "|".join(map(re.escape, [*annexes(), "tests.pages"]))
    needs_annex = re.compile(rf"^(from|import) ({names})\b", re.MULTILINE)
    for test in (root / "tests").rglob("*.py"):
        if needs_annex.search(test.read_text()):
            test.unlink()


def main(arguments: list[str]) -> int:
    """Run pytest with these arguments on the core alone; returns its exit code."""
    chosen = [] if any(argument.startswith("tests") for argument in arguments) else _TESTS
    with tempfile.TemporaryDirectory() as folder:
        for name in _COPIED:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, Path(folder) / name)
        remove_annexes(Path(folder))
        command = [sys.executable, "-m", "pytest", "-m", "not annexes", *chosen, *arguments]
        environment = os.environ | {"PYTHONPATH": str(Path(folder) / "src")}
        return subprocess.run(command, cwd=folder, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
