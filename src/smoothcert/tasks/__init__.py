"""The tasks: one verb per file, each a function that a notebook can call."""
