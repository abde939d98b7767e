import matplotlib.pyplot as plt
import numpy as np
import pytest

from smoothcert.errors import InvalidInput
from smoothcert.report import figures
from smoothcert.report.chart import Axis, Chart, Line
from smoothcert.report.charts import certified_accuracy, charts, radius_against_samples, samples


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def legend(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_a_chart_is_drawn_on_the_axes_that_are_given(iss_run, doubling_run):
    for chart in charts([iss_run, doubling_run]):
        fig, ax = plt.subplots()
        assert figures.plot(chart, ax) == (fig, ax)
        assert legend(ax)[:2] == ["iss", "doubling"]
        assert (ax.get_xlabel(), ax.get_ylabel()) == (chart.x.title, chart.y.title)
        assert figures.plot(chart)[1] is not ax


def test_the_curve_and_its_band_are_those_of_the_chart(iss_run):
    chart = certified_accuracy([iss_run])
    _, ax = figures.plot(chart)
    [line] = ax.get_lines()
    assert line.get_xydata().tolist() == np.column_stack([chart.layers[0].x, chart.layers[0].y]).tolist()
    assert line.get_drawstyle() == "steps-pre"
    assert len(ax.collections) == 1


def test_shapes_are_explained(iss_run):
    _, ax = figures.plot(radius_against_samples([iss_run]))
    assert legend(ax) == ["iss", "correct", "wrong", "abstained"]


def test_a_run_with_several_lines_is_named_once():
    x = np.array([0.0, 1.0])
    lines = (Line("run", x, x), Line("run", x, 2 * x))
    _, ax = figures.plot(Chart("paths", "Paths", ("run",), Axis("samples"), Axis("votes"), lines))
    assert legend(ax) == ["run"]
    assert len({line.get_color() for line in ax.get_lines()}) == 1


def test_figures_of_a_run_are_written_with_text_as_text(iss_run, fixed_run, altered, tmp_path):
    hostile = altered(iss_run, name=r"$\frac{<script>$")
    paths = figures.save_figures([hostile, fixed_run], tmp_path / "new")
    assert {path.suffix for path in paths} == {".pdf", ".svg", ".png"}
    assert len(paths) == 3 * 6
    assert all(path.stat().st_size > 1_000 for path in paths)
    assert "certified accuracy</text>" in (tmp_path / "new" / "certified-accuracy.svg").read_text()
    assert plt.get_fignums() == []


def test_the_same_figure_is_the_same_file(iss_run, tmp_path):
    with figures.paper_style():
        first, second = (
            figures.save(figures.plot(samples([iss_run]))[0], tmp_path / folder / "samples") for folder in ("a", "b")
        )
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_a_folder_that_cannot_be_made_is_named(iss_run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot write figures into"):
        figures.save_figures([iss_run], tmp_path / "file")
