"""Claims about refusals: an error is told by its code and fields, not by its sentence."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from smoothcert.errors import InvalidInput, SmoothcertError


@contextmanager
def refused(
    code: str, kind: type[SmoothcertError] = InvalidInput, /, **fields: Any
) -> Iterator[pytest.ExceptionInfo[SmoothcertError]]:
    """In this context, an error with this code is raised; it has at least these fields."""
    with pytest.raises(kind) as raised:
        yield raised
    error = raised.value
    assert error.code == code, f"{error.code}: {error}"
    found = {name: error.fields.get(name) for name in fields}
    assert found == fields
