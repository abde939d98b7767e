"""Certified robustness by randomized smoothing, at a fraction of the samples.

The names in `__init__.pyi` are the whole public interface. Each is imported when it is first used, so that
`import smoothcert` costs nothing and the statistics never load torch.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

_IMPORT = re.compile(r"^from (\S+) import (\w+) as", re.M)
_HOME = {
    name: module for module, name in _IMPORT.findall(Path(__file__).with_suffix(".pyi").read_text())
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
