"""The demo, with fewer inputs than a user sees."""

import json
from functools import partial

from smoothcert.tasks import certify


def test_the_demo_compares_four_plans_and_writes_a_report(smoothcert, tmp_path, monkeypatch):
    monkeypatch.setattr(certify, "certify", partial(certify.certify, limit=4))
    found = json.loads(smoothcert(f"demo --out {tmp_path} --json").out)
    assert [run["name"] for run in found["runs"]] == [
        "fixed",
        "input-specific",
        "radii",
        "radii-runner-up",
    ]
    assert "Of 4 inputs" in (tmp_path / "report.html").read_text()
