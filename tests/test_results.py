"""README and docs show the numbers of docs/results, and no measured number that is not in these files."""

import json
import re
from pathlib import Path

import pytest
from benchmarks import pages, results
from benchmarks.catalog import EXPERIMENTS

# Tables with numbers that nobody measured, by their first titles.
NOT_MEASURED = (
    "| `--arch` | parameters (colour) |",  # definitions
    "| looks | t | votes needed |",  # exact values, which tests compute again
    "| noise | what differs | eps for an ImageNet input",  # bounds, which tests compute again
    "| trap | what it leads to |",
    "| published, certified accuracy at |",  # by others, with their sources
)


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: str(page.relative_to(results.ROOT)))
def test_a_page_shows_the_numbers_of_its_files(page):
    text = page.read_text(encoding="utf-8")
    assert pages.fill(page, text) == text, "run: python -m benchmarks render"
    for path, seal in pages.figures(text):
        assert path.read_text(encoding="utf-8").endswith(f"{seal}\n"), (
            f"{path.name}: run: python -m benchmarks render"
        )


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: str(page.relative_to(results.ROOT)))
def test_a_table_of_measured_numbers_names_its_file(page):
    for title in pages.unmarked_tables(page.read_text(encoding="utf-8")):
        assert title.startswith(NOT_MEASURED), f"no marker above {title}"


def test_the_sentences_of_the_readme_contain_no_measured_number():
    text = (results.ROOT / "README.md").read_text(encoding="utf-8")
    prose = pages.CODE.sub("", pages.BLOCK.sub("", text))
    units = r"%|(?:s|seconds|minutes|hours|times|points|GiB|samples per|per second)\b"
    assert re.findall(rf"(?<![\w.:/-])\d[\d.,]*\s*(?:{units}).{{0,20}}", prose) == []


def test_the_readme_is_short():
    text = (results.ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 120
    assert len(text.split()) <= 900


def test_the_pages_without_the_generated_reference_are_short():
    texts = [page.read_text(encoding="utf-8") for page in results.ROOT.glob("docs/*.md")]
    shown = " ".join(re.sub("<!--.*?-->", "", text, flags=re.S) for text in texts)
    assert len([word for word in shown.split() if re.search(r"\w", word)]) <= 30_000


def test_every_file_is_shown_and_can_be_made_again():
    files = {path.stem for path in results.FOLDER.glob("*.json")}
    assert files == set().union(
        *(pages.used(page.read_text(encoding="utf-8")) for page in pages.PAGES)
    )
    assert files <= {experiment.name for experiment in EXPERIMENTS}


def test_a_changed_digit_is_noticed(tmp_path):
    page = results.ROOT / "README.md"
    text = page.read_text(encoding="utf-8")
    block = next(match for match in pages.BLOCK.finditer(text) if match["kind"] == "table")
    digit = re.search(r"\d", block["body"])
    at = block.start("body") + digit.start()
    assert pages.fill(page, f"{text[:at]}{(int(text[at]) + 1) % 10}{text[at + 1 :]}") == text


def test_a_table_without_a_marker_is_noticed():
    measured = "| plan | samples |\n|---|---:|\n| fixed | 10,100 |\n"
    assert list(pages.unmarked_tables(measured)) == ["| plan | samples |"]
    assert not list(pages.unmarked_tables(f"<!-- table x: plan -->\n{measured}<!-- /table -->"))
    assert not list(
        pages.unmarked_tables("| option | is |\n|---|---|\n| `--samples 100` | the ceiling |\n")
    )


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with one result file, and a page beside it."""
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    numbers = {
        "rows": [
            {"plan": "fixed", "samples": 10_100.0, "ca": {"0": 89.6, "0.25": 85.6}},
            {"plan": "radii", "samples": 551.858, "ca": {"0": 89.6}},
        ]
    }
    content = {
        "version": "1.0",
        "machine": "a GPU",
        "settings": {"sigma": 0.25},
        "numbers": numbers,
    }
    (tmp_path / "a.json").write_text(json.dumps(content))
    return tmp_path / "page.md"


def test_markers_write_tables(files):
    page = """\
<!-- table a: sigma | plan | samples = {samples:,.0f} | CA * = {ca/*:.1f} -->
<!-- /table -->
<!-- table a#.: first plan = {rows/0/plan} | samples = {rows/0/samples:,.0f} -->
<!-- /table -->
"""
    assert (
        pages.fill(files, page)
        == """\
<!-- table a: sigma | plan | samples = {samples:,.0f} | CA * = {ca/*:.1f} -->
| sigma | plan | samples | CA 0 | CA 0.25 |
| --- | --- | ---: | ---: | ---: |
| 0.25 | fixed | 10,100 | 89.6 | 85.6 |
| 0.25 | radii | 552 | 89.6 |  |

<small>Measured with version 1.0 on a GPU: [a](a.json).</small>
<!-- /table -->
<!-- table a#.: first plan = {rows/0/plan} | samples = {rows/0/samples:,.0f} -->
| first plan | samples |
| --- | ---: |
| fixed | 10,100 |

<small>Measured with version 1.0 on a GPU: [a](a.json).</small>
<!-- /table -->
"""
    )


def test_an_experiment_is_current_until_version_or_settings_change(files):
    experiment = EXPERIMENTS[0]
    assert experiment.state(files.parent) == "missing"
    results.write(
        experiment.name, experiment.command, experiment.settings, {}, 1.0, folder=files.parent
    )
    assert experiment.state(files.parent) == "current"
    path = Path(files.parent / f"{experiment.name}.json")
    path.write_text(path.read_text().replace('"version": "', '"version": "0.'))
    assert experiment.state(files.parent).startswith("of version 0.")
