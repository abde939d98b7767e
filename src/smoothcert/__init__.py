"""Certified robustness by randomized smoothing, at a fraction of the samples.

The names in `__init__.pyi` are the whole public interface. Each is imported when it is first used,
so that `import smoothcert` costs nothing and the statistics never load torch.
"""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

# We read the stub ourselves: lazy_loader would do the same, but it is one package more to install.
_STUB = Path(__file__).with_suffix(".pyi").read_text()
_IMPORTS = re.findall(r"^from (\S+) import (\w+) as", _STUB, re.M)
_MODULE_OF = {name: module for module, name in _IMPORTS}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
