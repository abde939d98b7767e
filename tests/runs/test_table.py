from dataclasses import replace

import numpy as np
import pytest
from rich.text import Text
from tests.refusals import refused

from smoothcert.noises import Gaussian, Uniform
from smoothcert.plans import AtRadii, Combined, Fixed, InputSpecific
from smoothcert.runs.decline import largest_decline
from smoothcert.runs.formats import read_results, write_results
from smoothcert.runs.results import COLUMNS, Results
from smoothcert.runs.table import FORMATS, table


def test_mad_is_against_the_largest_fixed_run_on_the_same_noise(iss_run, fixed_run, simulate):
    small = simulate("small", Fixed(1_000))
    elsewhere = simulate("elsewhere", Fixed(20_000), seed=1)
    rows = {row.run.name: row for row in table([iss_run, small, fixed_run, elsewhere]).rows}
    assert rows["iss"].mad == largest_decline(iss_run, fixed_run) > 0
    assert rows["small"].mad == largest_decline(small, fixed_run) > 0
    assert rows["fixed"].mad == rows["elsewhere"].mad == 0


def test_mad_of_a_plan_is_against_its_own_ceiling_at_its_own_alpha(iss_run, fixed_run, simulate):
    larger = simulate("larger", Fixed(40_000, pilot=100))
    rows = {row.run.name: row for row in table([larger, iss_run, fixed_run]).rows}
    assert rows["iss"].mad == largest_decline(iss_run, fixed_run) < largest_decline(iss_run, larger)
    assert rows["fixed"].mad == largest_decline(fixed_run, larger)
    assert table([iss_run, simulate("bolder", Fixed(10_000, alpha=0.05))]).rows[0].mad is None


@pytest.mark.parametrize("other", [{"pilot": 1_000}, {"pilot_use": "reuse"}, {"alpha": 0.05}])
def test_mad_is_only_told_between_runs_that_count_from_the_same_sample_on(
    iss_run, fixed_run, simulate, other
):
    elsewhere = simulate("elsewhere", Fixed(10_000, **other))
    for order in ([iss_run, fixed_run, elsewhere], [elsewhere, fixed_run, iss_run]):
        mads = {row.run.name: row.mad for row in table(order).rows}
        assert mads == {"iss": largest_decline(iss_run, fixed_run), "fixed": 0, "elsewhere": 0}
    with pytest.warns(
        UserWarning,
        match=r"^no MAD against elsewhere: the plans of iss and elsewhere differ in pilot",
    ):
        [row] = table([iss_run], reference=elsewhere).rows
    assert (row.mad, row.ceiling) == (None, None)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            {"noise": Gaussian(1.0)},
            r"the noise of iss is Gaussian\(sigma=0\.5\), not Gaussian\(sigma=1\.0\)",
        ),
        (
            {"manifest": None},
            "iss has another model, data, seed or number format, and so other votes",
        ),
        (
            {"plan": AtRadii([0, 0.5])},
            r"the radii of fixed \(.*\) cannot be compared with those of other plans",
        ),
        ({"plan": None}, "the plan of fixed is unknown"),
    ],
)
def test_a_reference_that_is_not_used_is_told(iss_run, fixed_run, altered, change, reason):
    with pytest.warns(UserWarning, match=f"^no MAD against fixed: {reason}"):
        table([iss_run], reference=altered(fixed_run, **change))


def test_a_reference_with_other_inputs_is_told(iss_run, fixed_run, altered):
    with pytest.warns(
        UserWarning, match="^no MAD against fixed: iss has inputs that fixed has not$"
    ):
        table([iss_run], reference=altered(fixed_run, id=fixed_run.id + 1))


def test_a_fixed_run_is_its_own_reference_among_those_of_its_size(fixed_run, altered):
    shorter = altered(fixed_run, radius=fixed_run.radius / 2)
    for order in ([fixed_run, shorter], [shorter, fixed_run]):
        assert [row.mad for row in table(order).rows] == [0, 0]


def test_plans_together_are_held_against_the_ceiling_of_the_first(iss_run, fixed_run, simulate):
    both = simulate("both", Combined((iss_run.plan, Fixed(40_000, pilot=100))))
    [row, _] = table([both, fixed_run]).rows
    assert (row.mad, row.ceiling) == (largest_decline(iss_run, fixed_run), 10_000)


def test_a_fixed_run_below_the_ceiling_is_no_reference(iss_run, simulate):
    rows = table([iss_run, simulate("small", Fixed(1_000))]).rows
    assert rows[0].mad is None


def test_a_reference_need_not_stand_in_the_table(iss_run, fixed_run):
    [row] = table([iss_run], reference=fixed_run).rows
    assert row.mad == largest_decline(iss_run, fixed_run)


def test_runs_exports_and_logs_stand_in_one_table(iss_run, fixed_run, tmp_path):
    write_results(iss_run, tmp_path / "iss.parquet", "parquet")
    write_results(fixed_run, tmp_path / "fixed.tsv", "cohen")
    made = table(
        [read_results(tmp_path / "iss.parquet"), read_results(tmp_path / "fixed.tsv"), fixed_run]
    )
    assert [row.run.average_samples is None for row in made.rows] == [False, True, False]
    for format in FORMATS:
        assert "iss" in made.render(format)


def test_every_format_shows_the_same_acr(iss_run, fixed_run):
    made = table([iss_run, fixed_run])
    exact = made.plain()["runs"][0]["acr"]
    assert exact == iss_run.acr
    for format in ("terminal", "markdown", "latex"):
        assert f"{exact:.6f}"[:5] in made.render(format)


def test_the_best_is_marked_only_among_runs_with_the_same_noise(iss_run, fixed_run, altered):
    smaller = altered(iss_run, radius=iss_run.radius / 4)
    marked = table([smaller, fixed_run], radii=[0.0]).render("markdown").splitlines()
    assert f"**{iss_run.average_samples:,.0f}**" in marked[2]
    assert "**" in marked[3]
    alone = table([iss_run, altered(fixed_run, noise=Gaussian(1.0))], radii=[0.0]).render(
        "markdown"
    )
    assert "**" not in alone


def test_a_rare_loss_leaves_the_average_radius_unmarked(fixed_run, altered):
    """The other run gains a little almost everywhere. Student's interval would mark it."""
    gained = fixed_run.radius + 0.01
    gained[np.argmax(fixed_run.radius * fixed_run.correct)] = 0
    made = table([fixed_run, altered(fixed_run, name="gains", radius=gained)])
    acr = made.titles.index("ACR")
    assert not any(row[acr].best for row in made.cells)


def test_other_inputs_are_no_rivals(iss_run, fixed_run, altered):
    fewer = altered(fixed_run, **{name: column[:-1] for name, column in fixed_run.columns.items()})
    assert not any(cell.best for row in table([iss_run, fewer]).cells for cell in row)


def test_the_noise_is_told_where_it_differs(iss_run, fixed_run, altered):
    assert "noise" not in table([iss_run, fixed_run]).titles
    made = table([iss_run, altered(fixed_run, noise=Gaussian(2.0))])
    assert [row[made.titles.index("noise")].text for row in made.cells] == [
        "gaussian:0.5",
        "gaussian:2",
    ]
    assert [row["noise"] for row in made.plain()["runs"]] == [
        "Gaussian(sigma=0.5)",
        "Gaussian(sigma=2.0)",
    ]


def test_other_units_are_told_and_are_no_rivals(iss_run, altered):
    bytes_run = altered(
        iss_run,
        name="b",
        radius=iss_run.radius * 255,
        manifest=replace(iss_run.manifest, values=(0, 255)),
    )
    made = table([iss_run, bytes_run])
    assert [row[made.titles.index("of inputs in")].text for row in made.cells] == ["-", "[0, 255]"]
    assert not any(cell.best for row in made.cells for cell in row)
    assert "of inputs in" in table([bytes_run]).titles
    assert "radii in" in table([iss_run, altered(iss_run, noise=Uniform(0.5))]).titles


def test_another_alpha_is_told_and_is_no_rival(iss_run, fixed_run, simulate):
    assert "alpha" not in table([iss_run, fixed_run]).titles
    made = table([fixed_run, simulate("bolder", Fixed(10_000, alpha=0.1))])
    assert [row[made.titles.index("alpha")].text for row in made.cells] == ["0.001", "0.1"]
    assert not any(cell.best for row in made.cells for cell in row)


def test_a_log_does_not_tell_its_alpha(iss_run, tmp_path):
    write_results(iss_run, tmp_path / "log.tsv", "cohen")
    assert "alpha" not in table([iss_run, read_results(tmp_path / "log.tsv")]).titles


def test_every_plan_that_counts_its_pilot_again_says_so():
    reused = Fixed(1_000, pilot_use="reuse")
    assert str(reused) == "fixed 1,000, pilot reused"
    assert str(InputSpecific(1_000, pilot_use="reuse")).endswith("decline 0.05, pilot reused")
    assert (
        str(Combined((reused, Fixed(2_000))))
        == "combined 2,000, certificates of fixed 1,000, pilot reused"
    )
    assert "reused" not in str(Combined((Fixed(2_000), reused)))


def test_latex_compiles_for_hostile_names(iss_run, altered):
    latex = table([altered(iss_run, name=r"a_b & 50% \input{x}")], radii=[0.0]).render("latex")
    assert r"a\_b \& 50\% \textbackslash{}input\{x\}" in latex
    assert latex.count(r"\\") == 2


@pytest.mark.parametrize(
    ("format", "hidden"), [("markdown", "<script>"), ("markdown", "a | b"), ("terminal", "[bold]")]
)
def test_a_hostile_name_stays_text(iss_run, altered, format, hidden):
    text = table([altered(iss_run, name=hidden)], radii=[0.0]).render(format)
    if format == "terminal":
        assert hidden in text
    else:
        assert hidden not in text
        assert len({row.replace(r"\|", "").count("|") for row in text.splitlines()[:3]}) == 1


def test_a_run_without_certificates_is_named(iss_run):
    empty = Results.from_certificates("begun", [])
    with refused("no-certificates", names="begun"):
        table([empty])
    with pytest.warns(UserWarning, match="left out, without certificates yet: begun"):
        made = table([iss_run, empty])
    assert [row.run.name for row in made.rows] == [iss_run.name]


def test_no_runs_make_no_table():
    with refused("no-runs"):
        table([])


def test_what_needs_labels_is_not_told_without_them(iss_run, fixed_run, altered):
    made = table([altered(iss_run, label=np.full(len(iss_run), -1)), fixed_run], radii=[0])
    without, labelled = made.plain()["runs"]
    assert (without["acr"], without["certified_accuracy"]) == (None, {"0": None})
    assert labelled["acr"] == fixed_run.acr
    assert {
        title: cell.text
        for title, cell in zip(made.titles, made.cells[0], strict=True)
        if cell.text == "-"
    } == {
        "ACR": "-",
        "CA 0": "-",
    }
    for format in FORMATS:
        made.render(format)
    assert "ACR -" in repr(altered(iss_run, label=np.full(len(iss_run), -1)))


def test_inputs_without_a_label_among_others_are_told(iss_run, fixed_run, altered):
    halves = altered(iss_run, label=np.where(iss_run.id < 200, -1, iss_run.label))
    made = table([halves, fixed_run])
    assert [row[made.titles.index("unlabelled, as wrong")].text for row in made.cells] == [
        "20",
        "-",
    ]
    assert [row["unlabelled"] for row in made.plain()["runs"]] == [20, 0]
    without = altered(iss_run, label=np.full(len(iss_run), -1))
    assert "unlabelled, as wrong" not in table([without, fixed_run]).titles


def test_runs_without_labels_show_their_radii_and_no_empty_columns(iss_run, altered):
    made = table([altered(iss_run, label=np.full(len(iss_run), -1))])
    assert made.titles == [
        "run", "method", "inputs", "avg samples", "time", "abstained",
        "smallest radius", "median radius", "mean radius", "p 75%", "p 50%",
    ]  # fmt: skip
    certified = iss_run.radius[~iss_run.abstained]
    for text, exact in zip(
        made.cells[0][-5:-2], (certified.min(), np.median(certified), certified.mean()), strict=True
    ):
        assert 0 <= exact - float(text.text) < 0.001
    assert [line.partition(":")[0] for line in made.legend("*")] == ["radius", "p"]


def test_the_legend_explains_what_the_table_shows(iss_run, fixed_run):
    alone, both = table([iss_run], radii=[0]), table([iss_run, fixed_run], radii=[0])
    assert [line.partition(":")[0] for line in alone.legend("*")] == ["ACR", "CA r", "p"]
    assert [line.partition(":")[0] for line in both.legend("*")] == ["MAD", "ACR", "CA r", "p", "*"]
    assert both.cells[1][both.titles.index("CA 0")].text.endswith("%")
    for format in FORMATS:
        assert "average certified radius" in " ".join(both.render(format).split())
    latex = both.render("latex").splitlines()
    assert all(line.startswith("%") for line in latex if "average certified radius" in line)


@pytest.mark.parametrize("radius", [-1, float("nan"), float("inf")])
def test_a_radius_that_is_none_is_refused(iss_run, radius):
    with refused("not-at-least", name="each radius"):
        table([iss_run], radii=[0, radius])


def test_a_run_that_is_not_complete_says_so(iss_run, altered):
    partial = altered(
        iss_run,
        manifest=replace(iss_run.manifest, ids=tuple(range(0, 10 * (len(iss_run) + 10), 10))),
    )
    assert f"{len(iss_run)}/{len(iss_run) + 10}" in table([partial]).render()
    assert "/" not in table([iss_run]).cells[0][2].text


def test_json_tells_what_was_asked_for_and_at_which_noise_and_alpha(iss_run, altered):
    partial = altered(iss_run, manifest=replace(iss_run.manifest, ids=tuple(range(0, 700, 10))))
    made = table([partial])
    [row] = made.plain()["runs"]
    assert (row["inputs"], row["asked"], row["noise"], row["alpha"]) == (
        60,
        70,
        "Gaussian(sigma=0.5)",
        0.001,
    )


def test_a_narrow_terminal_gets_a_column_per_run(iss_run, fixed_run, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    lines = [
        line.rstrip()
        for line in Text.from_ansi(table([iss_run, fixed_run]).render()).plain.splitlines()
    ]
    assert max(map(len, lines)) <= 80
    assert next(line for line in lines if "ACR" in line).split()[0] == "ACR"


@pytest.mark.parametrize(("lost", "marked"), [(5, [False, False]), (9, [True, False])])
def test_a_mark_needs_a_difference_that_is_more_than_chance(fixed_run, altered, lost, marked):
    """Of 60 inputs, losing 5 may be chance, losing 9 is not."""
    largest = np.argsort(-fixed_run.radius)[:lost]
    less = altered(
        fixed_run, radius=np.where(np.isin(np.arange(60), largest), 0.01, fixed_run.radius)
    )
    made = table([fixed_run, less], radii=[0.25])
    assert [row[made.titles.index("CA 0.25")].best for row in made.cells] == marked


def test_what_chance_could_explain_is_marked_with_the_best(fixed_run, altered):
    close = altered(
        fixed_run, name="close", radius=np.where(fixed_run.id == 590, 0.01, fixed_run.radius)
    )
    nothing = altered(fixed_run, name="nothing", radius=fixed_run.radius / 100)
    made = table([fixed_run, close, nothing], radii=[0.25])
    for title in ("CA 0.25", "ACR"):
        assert [row[made.titles.index(title)].best for row in made.cells] == [True, True, False]


def test_a_table_takes_paths_and_tells_equal_names_apart(iss_run, tmp_path):
    for folder in ("a", "b"):
        write_results(iss_run, tmp_path / folder / "iss.json")
    paths = [tmp_path / "a" / "iss.json", str(tmp_path / "b" / "iss.json")]
    assert [row.run.name for row in table(paths).rows] == ["a/iss.json", "b/iss.json"]
    assert [row.run.name for row in table([iss_run, iss_run]).rows] == ["iss", "iss (2)"]
    opened = table([read_results(path) for path in paths])  # results know where they were read from
    assert [row.run.name for row in opened.rows] == [row.run.name for row in table(paths).rows]
    assert [row.run.name for row in table([paths[0], paths[0]]).rows] == [
        "a/iss.json",
        "a/iss.json (2)",
    ]
    assert [row.run.name for row in table(paths[0]).rows] == ["iss"]
    assert table([paths[0]], reference=paths[1]).rows[0].mad == 0


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ([3], "not-results"),
        ([None], "not-results"),
        (5, "not-results"),
        (None, "not-results"),
        (["no/such/folder"], "no-such-results"),
    ],
)
def test_what_is_no_run_is_refused(wrong, code):
    with refused(code):
        table(wrong)


def test_a_table_shows_in_a_notebook(iss_run, fixed_run, altered):
    made = table([altered(iss_run, name="<iss>"), fixed_run])
    shown = made._repr_html_()
    assert "<td>&lt;iss&gt;</td>" in shown
    assert shown.count("<tr>") == 3
    assert "<b>" in shown
    assert repr(made) == made.render()


def test_one_radius_is_as_good_as_a_list(iss_run):
    assert table(iss_run, radii=0.25).radii == (0.25,)
    with refused("not-at-least", name="each radius"):
        table(iss_run, radii="x")


def test_columns_are_chosen_and_runs_are_named(iss_run, fixed_run):
    chosen = table(
        {"Ours": iss_run, "Base": fixed_run}, radii=[0.0, 0.5], columns=["acr", "ca", "samples"]
    )
    assert chosen.titles == ["run", "ACR", "CA 0", "CA 0.5", "avg samples"]
    assert [row.run.name for row in chosen.rows] == ["Ours", "Base"]
    with refused("not-one-of", name="each column", value="accuracy"):
        table(iss_run, columns=["accuracy"])


def test_a_caption_makes_latex_a_whole_table(iss_run):
    latex = table(iss_run, radii=[0.0], columns=["acr"], caption="50% & more").render("latex")
    assert r"\caption{50\% \& more}" in latex
    formula = r"Radii at $\sigma = 0.5$"
    latex = table(iss_run, radii=[0.0], columns=["acr"], caption=formula).render("latex")
    assert rf"\caption{{{formula}}}" in latex
    assert latex.count(r"\begin{table}") == latex.count(r"\end{table}") == 1
    assert r"\begin{tabular}{lr}" in latex
    assert "table}" not in table(iss_run, radii=[0.0]).render("latex")


def test_the_average_radius_is_rounded_down_and_the_legend_says_so(iss_run, altered):
    run = altered(iss_run, radius=np.full(len(iss_run), 0.2399))
    shown = table(run, radii=[0.0])
    assert "0.239" in shown.render() or float(run.acr) < 0.2399
    assert "rounded down" in shown.render()


def test_what_may_not_be_compared_is_said_in_one_line(iss_run, fixed_run, simulate, altered):
    def said(*runs):
        return [line for line in table(list(runs)).legend("*") if line.startswith("not to be")]

    assert said(iss_run) == said(iss_run, fixed_run) == []
    small = simulate("small", Fixed(1_000))
    [line] = said(small, fixed_run)
    assert "CA and ACR, because the runs differ in ceiling (1,000, 10,000)" in line
    few = altered(small, **{name: getattr(small, name)[:30] for name in COLUMNS})
    [line] = said(few, fixed_run)
    assert f"inputs (30, {len(fixed_run):,})" in line
    [line] = said(simulate("bold", Fixed(10_000, alpha=0.01)), fixed_run)
    assert "alpha (0.01, 0.001)" in line
    log = replace(simulate("log", Fixed(100_000)), plan=None, noise=None, manifest=None)
    [line] = said(log, fixed_run)
    assert "noise, samples or alpha (radii of log are above" in line
    [line] = said(simulate("rivals", Fixed(10_000, bound="runner-up")), fixed_run)
    assert "bound (runner-up, binary)" in line
    [line] = said(simulate("decided", AtRadii([0, 0.5], 10_000)), fixed_run)
    assert line.startswith("not to be compared: ACR where radii are only decided")


def test_radii_that_a_run_cannot_prove_are_named(simulate):
    few = simulate("few", Fixed(100))
    assert "few has too few samples" in table(few, radii=[0, 3]).render("latex")
    assert "too few samples" not in table(few, radii=[0, 0.25]).render("latex")


def test_radii_that_a_run_does_not_decide_are_explained(simulate, fixed_run):
    decided = simulate("decided", AtRadii([0, 0.25, 0.5], 10_000))
    shown = table(decided, radii=[0, 0.3, 0.5, 1], columns=["ca"])
    _, _, between, at_next, beyond = [cell.text for cell in shown.cells[0]]
    assert between == at_next
    assert beyond == "-"
    for format in FORMATS:
        assert "a lower bound; - where" in " ".join(shown.render(format).split())
    [line] = [line for line in shown.render("latex").splitlines() if "lower bound" in line]
    assert line.startswith("%")
    for run, radii in ((decided, [0, 0.5]), (fixed_run, [0, 0.3])):
        assert "lower bound" not in table(run, radii=radii).render()
