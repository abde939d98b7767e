"""Run the notebooks of `examples/`, and check that no output names a machine. `make notebooks` installs the extras."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted(ROOT.glob("examples/*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_small_executed_and_names_no_machine(path):
    text = path.read_text(encoding="utf-8")
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    assert path.stat().st_size < 50_000
    assert not re.search(r"/(home|tmp|Users)/", text)
    assert not any(output["output_type"] == "error" for cell in cells for output in cell["outputs"])


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
@pytest.mark.filterwarnings("default")
def test_a_notebook_runs_and_shows_its_run(path):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "tools" / "notebooks.py")
    notebooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(notebooks)
    first, *_ = (cell for cell in notebooks.execute(path).cells if "sc.certify(" in cell.source)
    *_, shown = first.outputs  # the summary has replaced the lines before it
    assert shown.data["text/plain"].startswith("runs/")
    assert "samples" in shown.data["text/plain"]
