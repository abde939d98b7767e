"""Execute the notebooks of `examples/` in place, in an empty folder, and leave no trace of the machine in them.

python tools/notebooks.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"


def execute(path: Path) -> nbformat.NotebookNode:
    """The notebook with the outputs of its cells.

    Args:
        path: The file.
    """
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}
        ).execute()
    notebook.metadata = {"language_info": {"name": "python"}}
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            output.pop("metadata", None)
            if "metadata" in nbformat.v4.new_output(output.output_type):
                output.metadata = {}
    return notebook


def main() -> None:
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        notebook = execute(path)
        nbformat.write(notebook, path)
        print(
            f"{path.name}: {len(notebook.cells)} cells, {path.stat().st_size / 1000:.0f} kB",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
