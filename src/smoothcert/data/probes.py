"""The choice of the inputs whose content is part of the fingerprint of a data set."""

from __future__ import annotations

import numpy as np

_FULLY_READ_BYTES = 2**26
_PROBES = 16


def probes(count: int, *, size: int | None) -> list[int]:
    """The inputs to hash: all of them, or a few evenly spaced ones if reading all would take minutes."""
    number = count if size is not None and size <= _FULLY_READ_BYTES else min(count, _PROBES)
    return sorted({round(i) for i in np.linspace(0, count - 1, number)})
