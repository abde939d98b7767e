"""Experiments, files with their numbers, and the pages that show them: see `python -m benchmarks --help`."""

import time

STARTED = time.perf_counter()
"""When this process began to import."""
