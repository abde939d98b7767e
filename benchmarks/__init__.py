"""Experiments, files with their numbers, and the pages that show them: see `python -m benchmarks --help`."""
