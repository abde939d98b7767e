import sys

import matplotlib.pyplot as plt
import pytest
from tests.refusals import refused

import smoothcert as sc
from smoothcert.report import figures
from smoothcert.report.charts import (
    certified_accuracy,
    radius_against_samples,
    sample_maps,
    samples,
)
from smoothcert.report.vega import spec


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def test_figures_of_a_run_are_written_with_text_as_text(iss_run, fixed_run, altered, tmp_path):
    hostile = altered(iss_run, name=r"$\frac{<script>$")
    paths = figures.save_figures([hostile, fixed_run], tmp_path / "new")
    assert {path.suffix for path in paths} == {".pdf", ".svg", ".png"}
    assert len(paths) == 3 * 6
    drawn = (tmp_path / "new" / "certified-accuracy.svg").read_text()
    assert ">certified accuracy</text>" in drawn
    assert r"$\frac{&lt;script&gt;$" in drawn
    assert (
        b"LiberationSans" in (tmp_path / "new" / "certified-accuracy.pdf").read_bytes()
    )  # without a font, no text


def test_a_figure_fits_one_column_of_a_paper(iss_run, fixed_run, tmp_path):
    svg, pdf = figures.save(
        certified_accuracy([iss_run, fixed_run]), tmp_path / "curve", ("svg", "pdf")
    )
    assert 'width="245pt" height="173pt"' in svg.read_text()
    assert b"[0 0 245 173]" in pdf.read_bytes()


def test_several_charts_are_one_figure_with_their_titles(iss_run, fixed_run, tmp_path):
    panels = [certified_accuracy([iss_run, fixed_run]), samples([iss_run])]
    [svg] = figures.save(panels, tmp_path / "both", ["svg"])
    assert all(f">{panel.title}</text>" in svg.read_text() for panel in panels)


def test_the_same_figure_is_the_same_file(iss_run, tmp_path):
    first, second = (
        figures.save(samples([iss_run]), tmp_path / folder / "samples") for folder in ("a", "b")
    )
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_a_folder_that_cannot_be_made_is_named(iss_run, tmp_path):
    (tmp_path / "file").write_text("")
    with refused("cannot-write", path=tmp_path / "file" / "certified-accuracy.pdf"):
        figures.save_figures([iss_run], tmp_path / "file")


def test_lines_differ_in_print_without_colours(iss_run, doubling_run):
    page, paper = (
        spec(sample_maps([iss_run, doubling_run]), printed=printed) for printed in (False, True)
    )
    assert "strokeDash" not in page["layer"][0]["layer"][0]["encoding"]
    dashes = paper["layer"][0]["layer"][0]["encoding"]["strokeDash"]["scale"]["range"]
    assert dashes[0] != dashes[1]
    assert len(paper["layer"][0]["layer"]) == 1  # nothing waits for a pointer


def test_marks_keep_their_shapes_in_print(iss_run, tmp_path):
    [svg] = figures.save(radius_against_samples([iss_run]), tmp_path / "marks", ["svg"])
    assert all(
        f">{outcome}</text>" in svg.read_text() for outcome in ("correct", "wrong", "abstained")
    )


def test_the_curve_and_its_band_are_drawn_on_the_axes_that_are_given(iss_run, doubling_run):
    fig, ax = plt.subplots()
    assert sc.plot([iss_run, doubling_run], ax) == (fig, ax)
    chart = certified_accuracy([iss_run, doubling_run])
    for line, layer in zip(ax.get_lines(), chart.layers, strict=True):
        assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == (
            layer.x.tolist(),
            layer.y.tolist(),
        )
        assert line.get_drawstyle() == "steps-pre"
    assert len(ax.collections) == 2
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["iss", "doubling"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == (chart.x.title, chart.y.title)
    assert sc.plot(iss_run, bands=False)[1] is not ax


def test_a_curve_without_matplotlib_names_its_extra(iss_run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with refused("missing-extra", sc.MissingExtra, extra="plot"):
        sc.plot([iss_run])
