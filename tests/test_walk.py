"""The page on architecture names every file that one `certify` enters, and no other one."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"


def _named():
    """The files that the page names. A file without a folder is in that of the file before it."""
    walk = PAGE.read_text(encoding="utf-8").split("## The way of one `certify`\n")[1]
    steps = walk[walk.index("\n1. ") : walk.index("\nWithout ")]
    room = Path()
    files = set()
    for name in re.findall(r"`([\w/]+\.py)`", steps):
        file = Path(name.removeprefix("smoothcert/"))
        if len(file.parts) > 1:
            room = file.parent
        elif not name.startswith(("_", "smoothcert/")):
            file = room / name
        files.add(str(file))
    return files


@pytest.mark.slow
def test_the_way_of_one_certify_names_every_file_that_it_enters():
    walked = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "walk.py")],
        check=True,
        capture_output=True,
        text=True,
    )
    assert _named() == set(walked.stdout.split())
