"""Show the examples in docstrings as code on the reference pages.

Markdown takes lines that begin with `>>>` for a quotation. mkdocstrings loads this extension (see `mkdocs.yml`), which
puts every example into a code block.
"""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n.*\S.*)*", re.MULTILINE)


class FencedExamples(griffe.Extension):
    """Puts a code block around each run of lines that begins with `>>>` and ends at an empty line."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
