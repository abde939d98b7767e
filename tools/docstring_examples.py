"""Show the examples in docstrings as code on the reference pages.

Markdown takes lines that begin with `>>>` for a quotation. mkdocstrings loads this extension (see `mkdocs.yml`), which
puts every example into a code block and leaves out the directives for doctest.
"""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n.*\S.*)*", re.MULTILINE)
_DIRECTIVE = re.compile(r" *# doctest: .*")


class FencedExamples(griffe.Extension):
    """Puts a code block around each run of lines that begins with `>>>` and ends at an empty line."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = _EXAMPLE.sub(_fenced, obj.docstring.value)


def _fenced(example: re.Match[str]) -> str:
    return f"```pycon\n{_DIRECTIVE.sub('', example[0])}\n```"
