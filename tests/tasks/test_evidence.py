from html import unescape

import numpy as np
import pytest
from tests.refusals import refused

import smoothcert as sc
from smoothcert.report import write_report
from smoothcert.report.evidence import About, write_evidence
from smoothcert.runs.formats import write_results
from smoothcert.tasks.audit import audit
from smoothcert.tasks.gate import gate

SETTINGS = {"sigma": 0.25, "device": "cpu", "batch": 250, "progress": sc.Progress()}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    out = tmp_path_factory.mktemp("small") / "run"
    settings = SETTINGS | {"sigma": None, "noise": sc.Gaussian(0.25)}
    return sc.certify(
        "fashion-cnn", "fashion-mnist", plan=sc.Fixed(500), limit=3, out=out, **settings
    )


def test_joint_divides_alpha_so_that_all_certificates_hold_together(tmp_path):
    data = {
        "model": "fashion-cnn",
        "data": "fashion-mnist",
        "plan": sc.Fixed(500, alpha=0.01),
        **SETTINGS,
    }
    run = sc.certify(**data, joint=True, ids=[0, 3, 5], out=tmp_path / "run")
    assert run.plan.alpha == 0.00333333
    assert (run.noise, run.manifest.dtype) == (
        sc.GridGaussian(0.25).for_shape((1, 28, 28)),
        "float32",
    )
    alone = sc.certify(**data, ids=[0, 3, 5], out=tmp_path / "alone")
    assert np.all(run.radius <= alone.radius)
    with pytest.raises(
        sc.InvalidInput, match="it differs in"
    ):  # another input would need another alpha
        sc.certify(**data, joint=True, ids=[0, 3, 5, 7], out=tmp_path / "run")
    page = write_evidence(
        tmp_path / "run", audit(tmp_path / "run", redraw=1), tmp_path / "evidence.html"
    ).read_text()
    assert "no change of the input in steps of 1/255" in page
    assert "No certificate is wrong, with probability 0.99." in page
    assert "certify with --joint" not in page
    assert run.manifest.weights_hash in page
    assert f"smoothcert audit {tmp_path / 'run'} --redraw 3" in page
    assert page.count("data:image/png") == len(run)


def test_an_exact_plan_has_no_alpha_to_divide():
    with refused("no-alpha"):
        sc.certify(
            "fashion-cnn",
            "fashion-mnist",
            noise=sc.Gaussian(0.25),
            plan=sc.Exact(),
            joint=True,
            device="cpu",
        )


def test_nothing_is_claimed_of_a_run_that_breaks_its_alpha(tmp_path):
    with pytest.warns(UserWarning, match="pilot"):
        sc.certify(
            "fashion-cnn",
            "fashion-mnist",
            plan=sc.InputSpecific(1000, pilot_use="reuse"),
            limit=2,
            out=tmp_path / "run",
            **SETTINGS,
        )
    page = write_evidence(
        tmp_path / "run", audit(tmp_path / "run", redraw=0), tmp_path / "evidence.html"
    ).read_text()
    assert "Nothing is claimed:" in page
    assert "alters the answer" not in page


def test_the_page_is_about_the_system_that_a_file_describes(small, tmp_path):
    (tmp_path / "about.toml").write_text(
        'system = "Sign <reader>"\nversion = "2.3"\npurpose = "Speed limits"\nsigned_by = "A. Person"'
    )
    about = About.read(tmp_path / "about.toml")
    page = write_evidence(
        small.path, audit(small.path, redraw=0), tmp_path / "page.html", about=about
    )
    text = page.read_text()
    for shown in ("Sign &lt;reader&gt;", "2.3", "Speed limits", "<dt>Name</dt><dd>A. Person</dd>"):
        assert shown in text


@pytest.mark.parametrize(
    ("content", "name"), [('signed = "A. Person"', "signed"), ("version = 2.3", "version")]
)
def test_a_field_that_the_page_does_not_have_is_refused(tmp_path, content, name):
    (tmp_path / "about.toml").write_text(content)
    with refused("not-about", name=name):
        About.read(tmp_path / "about.toml")


def test_every_verdict_says_that_the_vote_is_guaranteed_and_what_it_costs(small, tmp_path):
    verdicts = [
        write_evidence(small.path, audit(small.path, redraw=0), tmp_path / "case.html").read_text(),
        write_report(small, tmp_path / "report.html").read_text(),
        write_report(sc.compare(small, small), tmp_path / "compare.html").read_text(),
        write_results(small, None, "card").decode().replace("\\", ""),
        gate(small, {"inputs": 1}).guaranteed,
        str(sc.compare(small, small)),
    ]
    for text in map(unescape, verdicts):
        assert "The network alone has no certificate." in text
        assert 'deploy Smoothed(model, noise="gaussian:0.25"' in text
        assert "costs 20 forward passes instead of one" in text


def test_what_has_to_be_deployed_has_all_settings_of_the_classifier(tmp_path):
    settings = {"sigma": 0.25, "resize": "28", "dtype": "float32", "device": "cpu"}
    images = np.zeros((2, 1, 40, 40), np.float32)
    run = sc.certify("fashion-cnn", images, **settings, samples=100, out=tmp_path / "run")
    found = gate(run, {"inputs": 1})
    assert '(model, noise="gaussian:0.25", dtype="float32", resize="28")' in found.guaranteed


def test_a_clear_answer_costs_what_is_said():
    smoothed = sc.Smoothed(
        lambda x: (x.mean((1, 2, 3)) > 0.5).long(), sigma=0.25, classes=2, device="cpu"
    )
    [answer] = smoothed.predict(np.zeros((1, 1, 8, 8), np.float32))
    assert (answer.prediction, answer.samples) == (0, 20)
