"""Certified robustness by randomized smoothing, at a fraction of the samples.

The names in `__init__.pyi` are the whole public interface. Each is imported when it is first used,
so that `import smoothcert` costs nothing and the statistics never load torch.
"""

import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any

# torch reads this when it is imported. Threads that wait busily slow down the one that they wait
# for, if they share its core.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# We read the stub ourselves: lazy_loader would do the same, but it is one package more to install.
_STUB = Path(__file__).with_suffix(".pyi").read_text()
_IMPORTS = re.findall(r"^from (\S+) import (\w+) as", _STUB, re.M)
_MODULE_OF = {name: module for module, name in _IMPORTS}
_LISTS = re.findall(r"^from (\S+) import \*", _STUB, re.M)
"""Modules of which all names in their `__all__` are public."""


def __getattr__(name: str) -> Any:
    if name == "__all__":
        value: Any = [
            *_MODULE_OF,
            *(name for list in _LISTS for name in import_module(list).__all__),
        ]
    elif name in _MODULE_OF:
        value = getattr(import_module(_MODULE_OF[name]), name)
    else:
        value = _listed(name)
    globals()[name] = value
    return value


def _listed(name: str) -> Any:
    for module in _LISTS:
        if not name.startswith("_") and name in import_module(module).__all__:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__getattr__("__all__"))
