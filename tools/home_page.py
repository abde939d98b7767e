"""Show the README of the repository as the home page of the site, so that there is one text.

mkdocs loads this hook (see `mkdocs.yml`). Links of the README begin at the root of the repository, those of a page in
`docs`.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

_LINK = re.compile(r"\]\((?!https?:|#)([^)]+)\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the README as the page `README.md`."""
    readme = Path(config.config_file_path).parent / "README.md"
    text = _LINK.sub(_from_docs, readme.read_text(encoding="utf-8"))
    files.append(File.generated(config, "README.md", content=text))
    return files


def _from_docs(link: re.Match[str]) -> str:
    path = link[1]
    return f"]({path.removeprefix('docs/') if path.startswith('docs/') else '../' + path})"
