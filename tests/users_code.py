"""Modules of the user in a process that runs many tests."""

import importlib
import sys

from smoothcert import _registry


def forget(module):
    """Make this process forget a module, as if it had not imported it."""
    sys.modules.pop(module, None)
    importlib.invalidate_caches()
    for key in [key for key in _registry._REGISTERED if key[0] == module]:
        del _registry._REGISTERED[key]
