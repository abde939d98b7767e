"""When the command was started."""

from __future__ import annotations

import os
import time
from pathlib import Path

_FIRST_IMPORT = time.perf_counter()


def seconds_since_start() -> float:
    """Seconds since the process was started, where the system tells; else, since the command line was imported."""
    try:
        since_boot = float(Path("/proc/uptime").read_text().split()[0])
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return since_boot - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.perf_counter() - _FIRST_IMPORT
