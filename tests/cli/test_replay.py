import json
from pathlib import Path

import pytest

from smoothcert.runs.formats import write_results

SMALL = Path(__file__).parents[1] / "data" / "small-log.tsv"
PUBLISHED = Path(__file__).parents[3] / "shared" / "logs" / "imagenet-consistency-0.50.tsv"


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published logs are not here")
def test_replay_reproduces_the_paper(smoothcert):
    answer = smoothcert(
        f"replay {PUBLISHED} --sigma 0.5 --samples 100000 --pilot 1000 --decline 0.05 --kind absolute "
        "--pilot-use reuse --json"
    )
    found = json.loads(answer.out)
    assert found["average_samples"] == pytest.approx(34360, rel=0.03)
    assert found["acr"] == pytest.approx(0.799, abs=0.005)
    assert found["fixed"]["acr"] == pytest.approx(0.777, abs=0.005)
    assert found["fixed"]["samples"] == found["average_samples"]
    assert {"mad", "abstained", "certified_accuracy", "ceiling"} <= set(found)


def test_the_table_of_a_replay_fits_a_terminal(smoothcert):
    table = smoothcert(f"replay {SMALL} --sigma 0.5 --samples 10000 --log-samples 10000 --radii 0,0.5").out
    assert max(map(len, table.splitlines())) <= 80
    assert "small-log.tsv: 60 inputs, 20 repetitions" in table
    assert [line.split("  ")[1] for line in table.splitlines() if line.startswith("  ") and line.strip()][1:] == [
        "average samples",
        "saved",
        "ACR",
        "MAD",
        "abstained",
        "certified at 0",
        "certified at 0.5",
    ]


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_our_own_exports_are_replayed_too(smoothcert, iss_run, tmp_path, format):
    path = tmp_path / f"iss.{format}"
    write_results(iss_run, path, format)
    found = json.loads(smoothcert(f"replay {path} --sigma 0.5 --samples 10000 --json").out)
    assert found["inputs"] == len(iss_run)
    assert found["average_samples"] == pytest.approx(iss_run.average_samples, rel=0.05)
