import numpy as np
import pytest

import smoothcert as sc
from smoothcert.report.case import write_case
from smoothcert.tasks.audit import audit

SETTINGS = {"sigma": 0.25, "device": "cpu", "batch": 250, "progress": sc.Progress()}


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
    page = write_case(
        tmp_path / "run", audit(tmp_path / "run", redraw=1), tmp_path / "case.html"
    ).read_text()
    assert "no change of the input in steps of 1/255" in page
    assert "All certificates hold, with probability 0.99." in page
    assert run.manifest.weights_hash in page
    assert f"smoothcert audit {tmp_path / 'run'} --redraw 3" in page
    assert page.count("data:image/png") == len(run)


def test_an_exact_plan_has_no_alpha_to_divide():
    with pytest.raises(
        sc.InvalidInput, match="has no alpha of its own to divide: leave joint=True out"
    ):
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
    page = write_case(
        tmp_path / "run", audit(tmp_path / "run", redraw=0), tmp_path / "case.html"
    ).read_text()
    assert "Nothing is claimed:" in page
    assert "alters the answer" not in page
