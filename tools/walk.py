"""Print the files that one `smoothcert certify` enters on a CPU: those whose functions are called.

python tools/walk.py
"""

from __future__ import annotations

import sys
import tempfile
import threading
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

import smoothcert
from smoothcert.cli import main

_SOURCE = Path(smoothcert.__file__).parent
_COMMAND = "smoothcert certify --model fashion-cnn --data fashion-mnist --sigma 0.25 --limit 20"


def entered(command: str) -> list[str]:
    """The files of smoothcert that a command enters, without those that are only imported."""
    files: dict[str, None] = {}

    def see(frame: FrameType, event: str, argument: Any) -> None:
        path = frame.f_code.co_filename
        is_new = event == "call" and path.startswith(str(_SOURCE)) and path not in files
        if is_new and not _is_importing(frame):
            files[path] = None

    sys.argv = command.split()
    threading.setprofile(see)
    sys.setprofile(see)
    try:
        with redirect_stdout(StringIO()):
            main()
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return [str(Path(path).relative_to(_SOURCE)) for path in files]


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module of smoothcert is being imported."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "<module>" and code.co_filename.startswith(str(_SOURCE)):
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        files = entered(f"{_COMMAND} --samples 10000 --device cpu --out {folder}/one")
    print("\n".join(files))
