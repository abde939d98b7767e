"""The core works without the annexes. `make core` runs all of its tests; here are some of them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_core_works_without_the_annexes():
    chosen = [
        "tests/plans/test_fixed.py",
        "tests/runs/test_journal.py",
        "tests/tasks/test_predict.py",
    ]
    command = [sys.executable, "tools/core.py", *chosen, "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
