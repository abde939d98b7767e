"""The demo, with fewer inputs than a user sees."""

import json


def test_the_demo_compares_four_plans_and_writes_a_report(smoothcert, tmp_path):
    found = json.loads(smoothcert(f"demo --out {tmp_path} --limit 4 --json").out)
    assert [run["name"] for run in found["runs"]] == [
        "fixed",
        "input-specific",
        "radii",
        "radii-runner-up",
    ]
    assert "Of 4 inputs" in (tmp_path / "report.html").read_text()
