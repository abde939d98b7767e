import matplotlib.pyplot as plt
import numpy as np
import pytest

from smoothcert import figures
from smoothcert.errors import InvalidInput
from smoothcert.runs.formats import read_results, write_results
from smoothcert.statistics.sample_map import SampleMap

PLOTS = [
    figures.plot_certified_accuracy,
    figures.plot_trade_off,
    figures.plot_radius_against_samples,
    figures.plot_samples,
    figures.plot_probabilities,
]


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.mark.parametrize("plot", PLOTS)
def test_a_plot_uses_the_axes_it_is_given(plot, iss_run, fixed_run):
    fig, ax = plt.subplots()
    assert plot([iss_run, fixed_run], ax=ax) == (fig, ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["iss", "fixed"]
    assert plot([iss_run])[1] is not ax


def test_the_curve_is_the_certified_accuracy(iss_run):
    _, ax = figures.plot_certified_accuracy([iss_run], band=False)
    radii, percent = ax.get_lines()[0].get_data()
    assert percent.tolist() == (100 * iss_run.certified_accuracy(radii)).tolist()


def test_a_sample_map_ends_at_what_unanimous_votes_need(iss_run):
    psi = SampleMap(iss_run.noise, samples=10_000)
    _, ax = figures.plot_sample_map([psi])
    assert ax.get_lines()[0].get_ydata()[-1] == psi(1.0)


def test_figures_of_a_run_are_written_with_text_as_text(iss_run, fixed_run, altered, tmp_path):
    hostile = altered(iss_run, name=r"$\frac{<script>$")
    paths = figures.save_figures([hostile, fixed_run], tmp_path / "new")
    assert {path.suffix for path in paths} == {".pdf", ".svg", ".png"}
    assert len(paths) == 3 * 6
    assert all(path.stat().st_size > 1_000 for path in paths)
    assert "certified accuracy (%)</text>" in (tmp_path / "new" / "certified-accuracy.svg").read_text()
    assert plt.get_fignums() == []


def test_the_same_figure_is_the_same_file(iss_run, tmp_path):
    with figures.paper_style():
        first, second = (
            figures.save(figures.plot_samples([iss_run])[0], tmp_path / folder / "samples") for folder in ("a", "b")
        )
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_a_published_log_has_no_figures_of_samples(iss_run, tmp_path):
    write_results(iss_run, tmp_path / "log.tsv", "cohen")
    paths = figures.save_figures([read_results(tmp_path / "log.tsv")], tmp_path)
    assert {path.stem for path in paths} == {"certified-accuracy"}


def test_what_needs_labels_is_not_drawn_without_them(iss_run, fixed_run, altered, tmp_path):
    without = altered(iss_run, name="without", label=np.full(len(iss_run), -1))
    for plot in (figures.plot_certified_accuracy, figures.plot_trade_off):
        _, ax = plot([without, fixed_run])
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["fixed"]
    drawn = {path.stem for path in figures.save_figures([without], tmp_path)}
    assert drawn == {"sample-map", "radius-against-samples", "samples", "probabilities"}


def test_a_folder_that_cannot_be_made_is_named(iss_run, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot write figures into"):
        figures.save_figures([iss_run], tmp_path / "file")
