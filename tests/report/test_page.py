"""The page in a real browser, opened from disk."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.pages import render

from smoothcert import Progress, certify
from smoothcert.noises import Brightness, Gaussian, GridGaussian, Splitting, Translation
from smoothcert.plans import Combined, Exact, Fixed, InputSpecific
from smoothcert.plans.coverage import Coverage, Simulated
from smoothcert.report import write_report
from smoothcert.report.charts import finest_shares
from smoothcert.report.page import environment, finest_of
from smoothcert.runs.decline import largest_decline
from smoothcert.runs.formats import read_results, write_results
from smoothcert.runs.results import Results
from smoothcert.runs.table import table
from smoothcert.tasks.ask import ask

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


class Pictures:
    """A data set of plain grey images whose class names are hostile."""

    name, fingerprint = "pictures", "1" * 16
    class_names = (HOSTILE, "</script>", "{{ 7 * 7 }}")

    def __len__(self):
        return 10_000

    def __getitem__(self, index):
        return np.full((1, 8, 8), index % 7 / 7, np.float32), 0


@pytest.fixture(scope="module")
def page_path(iss_run, fixed_run, altered, tmp_path_factory):
    hostile = altered(iss_run, name=HOSTILE, manifest=replace(iss_run.manifest, model=HOSTILE))
    path = tmp_path_factory.mktemp("report") / "report <b>.html"
    return write_report([hostile, fixed_run], path, dataset=Pictures())


@pytest.fixture(scope="module")
def browser():
    executable = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if executable is None:
        pytest.skip("no chromium on this machine: the page is not tried in a browser")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def opened(browser, page_path):
    """The page, with everything that it complained about or asked for."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    problems, requests = [], []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(page_path.as_uri())
    page.locator(".chart:not(:has(svg))").first.wait_for(state="detached")
    yield page, problems, requests
    page.close()


@pytest.fixture
def page(opened, page_path):
    page, problems, requests = opened
    page.fill("#find", "")
    page.select_option("#run", "0")
    page.select_option("#filter", "all")
    yield page
    assert problems == []
    assert [url for url in requests if not url.startswith("data:")] == [page_path.as_uri()]


def column(page, title):
    """The cells of one column of the certificates, as text."""
    titles = [cell.inner_text().strip(" ▲▼\n") for cell in page.query_selector_all("#rows th")]
    return [
        row.query_selector_all("td")[titles.index(title)].inner_text()
        for row in page.query_selector_all("#rows tbody tr")
    ]


def embedded(text):
    """The data inside a page."""
    return json.loads(text.partition('id="data">')[2].partition("</script>")[0])


def test_page_shows_the_same_acr_as_the_json(page, iss_run, fixed_run):
    shown = page.eval_on_selector_all(
        ".acr", "cells => cells.map(cell => [cell.dataset.value, cell.textContent])"
    )
    told = table([iss_run, fixed_run]).plain()["runs"]
    assert [float(exact) for exact, _ in shown] == [run["acr"] for run in told]
    assert all(
        0 <= run["acr"] - float(text) < 0.001 for (_, text), run in zip(shown, told, strict=True)
    )


def test_every_chart_is_drawn_with_alternative_text(page):
    described = page.eval_on_selector_all(
        "[role=graphics-document]", "all => all.map(e => e.ariaLabel)"
    )
    assert len(described) == page.locator(".chart").count() == 6
    assert described[0].startswith(
        "Certified accuracy. The share of inputs whose answer is correct"
    )
    assert all(len(text) > 40 for text in described)


def test_hovering_a_chart_shows_values(page):
    chart = page.locator("#certified-accuracy svg")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    assert re.search(r"certified accuracy:?\s*\d+\.\d%", tooltip.inner_text())
    assert "undefined" not in tooltip.inner_text()


def test_certificates_are_sorted_by_a_click(page, iss_run):
    page.click("#rows th button:text-is('radius')")
    radii = [float(text.replace("-", "0")) for text in column(page, "radius")]
    assert radii == sorted(radii)
    page.click("#rows th button:text-is('radius')")
    assert page.get_attribute("#rows th[aria-sort]", "aria-sort") == "descending"
    radii = [float(text.replace("-", "0")) for text in column(page, "radius")]
    assert radii == sorted(radii, reverse=True)
    assert radii[0] <= iss_run.radius.max() < radii[0] + 1e-4


@pytest.mark.parametrize("kind", ["wrong", "abstained"])
def test_certificates_are_filtered(page, iss_run, kind):
    page.select_option("#filter", label=kind)
    assert set(column(page, "outcome")) == {kind}
    assert len(column(page, "outcome")) == getattr(iss_run, kind).sum() > 0


def test_easiest_come_with_the_largest_radius_first(page, iss_run):
    page.select_option("#filter", "easiest")
    assert int(column(page, "input")[0]) in iss_run.id[iss_run.radius == iss_run.radius.max()]


def test_another_run_can_be_chosen_and_an_input_found(page, fixed_run):
    page.select_option("#run", "1")
    page.fill("#find", "500")
    assert column(page, "input") == ["500"]
    assert (
        int(column(page, "samples")[0].replace(",", ""))
        == fixed_run.samples[fixed_run.id == 500][0]
    )


def test_hostile_names_stay_text(page, page_path):
    assert page.title().startswith("Robustness certificates: <script>")
    assert page.text_content(".run h3") == HOSTILE
    assert column(page, "label")[0] == f"0 {HOSTILE}"
    page.fill("#find", "{{ 7")
    assert page.query_selector("img[src=x]") is None
    assert page.title() != "owned"
    assert "<script>document" not in page_path.read_text()


def test_pictures_are_shown_where_there_are_images(page):
    image = page.query_selector("#rows img")
    assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 8


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone_needs_no_sideways_scrolling(browser, page_path, scheme):
    page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    page.goto(page_path.as_uri())
    page.wait_for_selector("#sample-map svg")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    brightness = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (brightness == "rgb(255, 255, 255)") == (scheme == "light")
    page.close()


def test_ten_thousand_inputs_fit_a_page_and_are_drawn_as_they_are_reached(
    browser, simulate, tmp_path
):
    many = simulate("many", Fixed(100), inputs=10_000)
    path = write_report([many], tmp_path / "many.html", dataset=Pictures())
    assert path.stat().st_size < 5_000_000
    page = browser.new_page()
    page.goto(path.as_uri())
    assert 100 <= page.locator("#rows tbody tr").count() < 1_000
    page.evaluate("document.querySelector('.tall').scrollTo(0, 1e9)")
    page.locator("#rows tbody tr").nth(199).wait_for(state="attached")
    page.close()


def test_one_run_or_its_file_makes_a_page(iss_run, tmp_path):
    write_results(iss_run, tmp_path / "run.json")
    for results in (
        read_results(tmp_path / "run.json"),
        tmp_path / "run.json",
        [str(tmp_path / "run.json")],
    ):
        assert "In short" in write_report(results, tmp_path / "page.html").read_text()


def test_a_published_log_alone_makes_a_page(iss_run, tmp_path):
    write_results(iss_run, tmp_path / "log.tsv", "cohen")
    page = render([read_results(tmp_path / "log.tsv")])
    assert "A published log says nothing about its settings." in page
    assert 'id="certified-accuracy"' in page
    assert 'id="sample-map"' not in page


def test_runs_without_labels_make_a_page_without_figures_that_need_them(
    iss_run, fixed_run, altered
):
    unlabelled = altered(iss_run, label=np.full(len(iss_run), -1))
    page = render([unlabelled])
    assert "None of the 60 inputs has a label" in page
    assert 'class="acr"' not in page
    assert 'id="certified-accuracy"' not in page
    assert 'id="radius-against-samples"' in page
    assert render([unlabelled, fixed_run]).count('class="acr"') == 1


def test_inputs_without_a_label_among_others_are_told(iss_run, altered):
    halves = altered(iss_run, label=np.where(iss_run.id < 200, -1, iss_run.label))
    assert "20 of the inputs have no label</strong> and count as 0, too" in render([halves])
    assert "no label</strong>" not in render([iss_run])


def test_the_guarantee_names_a_plan_that_breaks_its_alpha(simulate):
    page = render([simulate("reused", InputSpecific(1_000, pilot_use="reuse"), inputs=20)])
    assert re.search(r"pilot reused.*<strong>no</strong>", page, re.DOTALL)


def test_the_guarantee_of_fixed_sampling_that_counts_its_pilot_again_is_told(simulate):
    page = render(
        [
            simulate("reused", Fixed(1_000, pilot_use="reuse"), inputs=20),
            simulate("sound", Fixed(1_000)),
        ]
    )
    guarantees = re.findall(
        r"<tr><td>(fixed[^<]*)</td><td>(\w+)", page.partition('id="guarantee"')[2]
    )
    assert guarantees == [("fixed 1,000, pilot reused", "reused"), ("fixed 1,000", "sound")]


def test_a_plan_is_called_proved_only_where_coverage_says_so(simulate, doubling_run):
    def verdict(run):
        page = render([run])
        return page, page.partition('id="guarantee"')[2].partition("</section>")[0]

    nearly = InputSpecific(
        62, pilot=61, alpha=0.01, decline=0.3, pilot_use="reuse"
    )  # keeps alpha in both figures
    page, guarantee = verdict(simulate("reused", nearly, inputs=20))
    assert "<strong>not proved</strong>" in guarantee
    assert "nearly tied can be wrong more often than both figures" in guarantee
    page, guarantee = verdict(doubling_run)
    assert "<td>not disproved</td>" in guarantee
    assert "This is not a proof." in guarantee
    assert page.count("The plan claims that each certificate is wrong") == 1
    assert (
        page.lower().count("nothing proves that this plan keeps its alpha") == 2
    )  # in short, and with the plan
    page, guarantee = verdict(simulate("sound", Fixed(1_000), inputs=20))
    assert "<td>yes</td>" in guarantee
    assert "claims" not in page.partition("<script")[0]


def test_plans_that_shared_their_draws_make_a_page(simulate):
    page = render([simulate("both", Combined((Fixed(1_000), InputSpecific(1_000))), inputs=10)])
    assert "combined 1,000" in page


def test_the_radius_lost_is_only_told_against_the_ceiling_that_was_saved_on(
    iss_run, fixed_run, simulate
):
    larger = simulate("larger", Fixed(40_000, pilot=100))
    lost = f"the largest radius lost to that is {largest_decline(iss_run, fixed_run):.3f}"
    assert lost in render([iss_run, fixed_run, larger])
    assert lost in render([iss_run], reference=fixed_run)
    page = render([iss_run, larger])
    assert "fewer forward passes than fixed sampling at 10,000." in page
    assert f'<td class="number">{largest_decline(iss_run, larger):.3f}</td>' in page


def test_an_export_of_a_run_that_is_not_finished_says_so(iss_run, altered, tmp_path):
    for last, unfinished in ((590, False), (600, True)):
        run = altered(
            iss_run, manifest=replace(iss_run.manifest, ids=tuple(range(0, last + 1, 10)))
        )
        write_results(run, tmp_path / "iss.json", "json")
        assert (
            "The run is not finished" in render([read_results(tmp_path / "iss.json")])
        ) == unfinished


def test_plans_together_promise_what_the_first_one_does(simulate):
    sound, reused = Fixed(1_000), InputSpecific(1_000, pilot_use="reuse")
    claim = "but the pilot is counted again"
    page = render([simulate("both", Combined((reused, sound)), inputs=10)])
    assert claim in page
    assert "<td>input-specific 1,000, decline 0.05, pilot reused</td><td>both</td>" in page
    page = render([simulate("both", Combined((sound, reused)), inputs=10)])
    assert claim not in page
    assert "<td>fixed 1,000</td><td>both</td>" in page


def test_the_norm_is_told(iss_run, l1_run, altered):
    l2, l1 = ("change of the input that is smaller than r in " + norm for norm in ("l2", "l1"))
    assert f"a <em>radius</em> r: no {l2} can alter the answer" in render([iss_run])
    assert "Radii (l2)." in render([iss_run])
    both = render([iss_run, l1_run])
    assert f"no {l2} ({iss_run.name}) and no {l1} ({l1_run.name}) can alter" in both
    assert "Radii (l2 or l1)." in both


def test_the_first_sentence_claims_only_what_the_noise_certifies(iss_run, altered):
    said = {
        GridGaussian(
            0.25
        ): "in steps of 1/255 (8-bit images in [0, 1]) that is smaller than r in l2 can alter",
        Brightness(
            0.1
        ): "no change of all values by the same number, without clipping, that is smaller than r can",
        Translation(2): "no circular shift by whole pixels that is shorter than r pixels can alter",
    }
    for noise, words in said.items():
        text = render([altered(iss_run, noise=noise)])
        assert words in text.split("</header>")[0]
        assert "no change of the input that" not in text
    log = altered(iss_run, name="log", noise=None, plan=None, manifest=None)
    assert (
        "no change of the input that is smaller than r, in the norm of the noise, can alter"
        in render([log])
    )
    assert f"smaller than r in l2 ({iss_run.name}) and no change of the input that" in render(
        [iss_run, log]
    )


def test_an_acr_over_chosen_radii_is_marked(iss_run, deciding_run):
    page = render([iss_run, deciding_run])
    assert "ACR counts only the radii that were asked for (0.25, 0.5)." in page
    assert "ACR counts only the radii that were asked for (deciding)." in page
    assert page.count("only those asked for") == 1
    assert "asked for" not in render([iss_run])


def test_a_plan_of_ones_own_with_known_labels_makes_a_page(doubling_run, browser, tmp_path):
    path = write_report([doubling_run], tmp_path / "page.html")
    page = browser.new_page()
    page.goto(path.as_uri())
    text = page.inner_text("#summary")
    assert "were not certified for their label" in text
    assert "abstained" not in text
    page.wait_for_selector("#sample-map svg")
    page.select_option("#filter", label="not certified")
    assert set(column(page, "outcome")) == {"not certified"}
    assert page.inner_text("#guarantee tbody td:last-child") == "not disproved"
    page.close()


def test_a_run_that_decides_radii_makes_a_page(radii_run, iss_run, browser, tmp_path):
    path = write_report([radii_run, iss_run], tmp_path / "page.html")
    page = browser.new_page(viewport={"width": 390, "height": 844})
    problems = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(path.as_uri())
    page.wait_for_selector("#sample-map svg")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert problems == []
    page.select_option("#filter", label="not certified")
    assert set(column(page, "outcome")) == {"not certified"}
    assert set(column(page, "radius")) == {"-"}
    page.close()


def test_where_labels_are_known_nobody_looks_for_wrong_inputs(
    radii_run, iss_run, browser, tmp_path
):
    path = write_report([iss_run, radii_run], tmp_path / "page.html")
    page = browser.new_page()
    page.goto(path.as_uri())
    wrong = page.locator("#filter [value=wrong]")
    page.select_option("#filter", "wrong")
    page.select_option("#run", "1")
    assert wrong.is_disabled()
    assert page.input_value("#filter") == "all"
    assert len(column(page, "outcome")) == len(radii_run)
    assert set(column(page, "outcome")) == {"correct", "not certified"}
    page.select_option("#run", "0")
    assert wrong.is_enabled()
    page.close()


def test_a_page_about_known_labels_never_says_abstained(radii_run):
    page = render([radii_run]).partition('<script type="application/json"')[0]
    assert "abstained" not in page
    assert "abstained" not in json.dumps(embedded(render([radii_run])))
    assert "not certified" in page
    assert "(0, 0.25, 0.75)." in page


def test_bounds_on_other_classes_are_listed_and_never_too_small(simulate, browser, tmp_path):
    run = simulate("pair", Fixed(1_000, bound="runner-up"), inputs=10)
    path = write_report([run], tmp_path / "page.html")
    page = browser.new_page()
    page.goto(path.as_uri())
    upper = [float(text) for text in column(page, "upper bound on others")]
    lower = [float(text) for text in column(page, "lower bound")]
    page.close()
    assert all(
        shown - 1e-4 < exact <= shown
        for shown, exact in zip(upper, run.upper.tolist(), strict=True)
    )
    assert all(
        shown <= exact < shown + 1e-4
        for shown, exact in zip(lower, run.lower.tolist(), strict=True)
    )
    [listed] = embedded(render([simulate("plain", Fixed(1_000), inputs=10)]))["runs"]
    assert not {"lower", "upper"} & set(listed["columns"])


def test_every_plan_is_explained_once(iss_run, fixed_run, altered):
    page = render([iss_run, fixed_run, altered(fixed_run, name="again")])
    section = page.partition('id="plans"')[2].partition("</section>")[0]
    assert section.count("<article") == 2
    assert "Fixed sampling: every input gets the same" in section
    assert "used by fixed, again" in section
    assert 'id="plans"' not in render([altered(iss_run, noise=None, plan=None, manifest=None)])


def test_a_plan_of_ones_own_is_explained(doubling_run):
    assert "spends up to 800 samples on each input" in render([doubling_run])


def test_an_upper_bound_on_the_failure_is_told_from_an_exact_figure(simulate):
    exact = render([simulate("plain", Fixed(1_000), inputs=10)])
    bounded = render([simulate("pair", Fixed(1_000, bound="runner-up"), inputs=10)])
    assert "at most 0.001000" in bounded
    assert "upper bound that a theorem" in bounded
    assert "at most 0.00" not in exact.partition('id="guarantee"')[2]


def test_a_simulated_failure_is_not_called_an_upper_bound():
    seen = Simulated(1_000, confidence=0.99, at_least=0.0005, at_most=0.002, rivals=1)
    coverage = Coverage(0.001, 0.0009, 0.6, 0.0, exact=False, searched=True, simulated=seen)
    guarantee = {"plan": InputSpecific(1_000), "runs": ["iss"], "coverage": coverage}
    section = environment().get_template("guarantee.html").render(guarantees=[guarantee])
    assert "about 0.000900" in section
    assert "share of simulated inputs" in section
    assert "at most" not in section


def test_a_page_with_pictures_is_written_without_torch(tmp_path):
    out = tmp_path / "run"
    certify(
        "fashion-cnn",
        "fashion-mnist",
        sigma=0.25,
        plan=Fixed(100),
        limit=2,
        out=out,
        progress=Progress(),
    )
    script = (
        "import sys\n"
        "from smoothcert.report import write_report\n"
        f"write_report({str(out)!r}, {str(tmp_path / 'page.html')!r})\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    page = embedded((tmp_path / "page.html").read_text())
    assert set(page["pictures"]) == {"0", "1"}
    assert page["classes"][9] == "Ankle boot"


def test_runs_of_the_same_name_are_told_apart(iss_run, altered):
    page = render([iss_run, altered(iss_run, noise=Gaussian(1.0))])
    assert "iss (2)" in page


def test_exact_certificates_are_called_exact_and_have_no_tie(iss_run, altered):
    page = render([altered(iss_run, plan=Exact(255), noise=Splitting(0.5, 255))])
    assert "The certificates are exact." in page
    assert "probability of at most 0.0" not in page
    assert '<td class="number">-</td>' in page.partition('id="guarantee"')[2]


def test_a_run_without_certificates_is_left_out_of_the_page(iss_run):
    with pytest.warns(UserWarning, match="left out, without certificates yet: begun"):
        page = render([iss_run, Results.from_certificates("begun", [])])
    assert "begun" not in page.partition('type="application/json"')[0]


def test_the_page_of_finest_answers_has_one_band_and_the_answer_to_each_input(on_disk, tmp_path):
    run = on_disk("levels", Fixed(1000, pilot=100), inputs=12)
    levels = {"side": {"left": [0], "right": [1, 2]}}
    answers = ask(run, groups=levels, finest=True, radii=[0.0, 0.25])
    page = write_report(answers, tmp_path / "answers.html").read_text()
    assert "finest-answers" in page
    assert "question 1 to this run" in page
    shares = finest_shares(answers, [0.0, 0.25])
    assert shares.sum(axis=0) == pytest.approx(1)
    assert finest_of(answers, 110, [0.0], None) == [("class 0", "class")]
    assert finest_of(answers, 0, [0.25], None) == [("", "")]
