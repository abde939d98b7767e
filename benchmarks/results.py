"""Result files: what an experiment measured, with which version and on which machine. Pages are filled from them."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from datetime import UTC, datetime
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path
from typing import Any

from smoothcert._version import __version__

VERSION = __version__
"""The version that is being made. The commit in a file says at which step its numbers were measured."""

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "results"


def read(name: str, folder: Path | None = None) -> dict[str, Any] | None:
    path = (folder or FOLDER) / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def names(pattern: str) -> list[str]:
    """The names of the files that match any of the patterns, which are separated by commas."""
    found = sorted(path.stem for path in FOLDER.glob("*.json"))
    return [name for part in pattern.split(",") for name in found if fnmatch(name, part)]


def write(
    name: str,
    command: str,
    settings: dict[str, Any],
    numbers: dict[str, Any],
    seconds: float,
    *,
    folder: Path,
) -> Path:
    content = {
        "command": command,
        "version": VERSION,
        "commit": _commit(),
        "machine": _machine(),
        "torch": version("torch"),
        "load": os.getloadavg()[0],  # above the number of threads, times are too long
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "seconds": seconds,
        "settings": settings,
        "numbers": numbers,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    unfinished = path.with_suffix(".part")
    unfinished.write_text(_text(_rounded(content)) + "\n", encoding="utf-8")
    unfinished.replace(path)
    return path


def _text(value: Any, indent: str = "") -> str:
    """JSON in which a row of a table is a line."""
    inner = indent + " "
    if isinstance(value, dict) and any(isinstance(item, dict | list) for item in value.values()):
        lines = [f"{inner}{json.dumps(key)}: {_text(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(inner + _line(item) for item in value) + f"\n{indent}]"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def _rounded(value: Any) -> Any:
    """The value with plain numbers of six significant digits: more would only be noise in the files."""
    if isinstance(value, dict):
        return {str(key): _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    if hasattr(value, "tolist"):  # of NumPy
        return _rounded(value.tolist())
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _commit() -> str:
    """The commit of the source tree. A copy without git is told by the environment."""
    if told := os.environ.get("SMOOTHCERT_COMMIT"):
        return told
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
        )
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def _machine() -> str:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.*)", info.read_text()) if info.is_file() else None
    threads = os.environ.get("OMP_NUM_THREADS", str(os.cpu_count()))
    return (
        f"{model[1] if model else platform.processor()}, {threads} thread{'s' * (threads != '1')}"
    )
