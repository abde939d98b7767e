import json

import pytest


def test_map_prints_the_reference_values(smoothcert):
    answer = smoothcert(
        "map --sigma 0.5 --samples 100000 --decline 0.05 --kind absolute --at 0.55,0.8,0.95,0.999,1 --json"
    )
    assert answer.code == 0
    rows = json.loads(answer.out)["map"]
    assert [row["p"] for row in rows] == [0.55, 0.8, 0.95, 0.999, 1]
    for row, expected in zip(rows, [1217, 1513, 2909, 21374, 67040], strict=True):
        assert abs(row["samples"] - expected) <= 1


def test_a_whole_number_may_have_an_exponent(smoothcert):
    assert smoothcert("map --sigma 0.5 --at 0.9 --samples 1e4") == smoothcert(
        "map --sigma 0.5 --at 0.9 --samples 10000"
    )


def test_map_shows_radii_rounded_down(smoothcert):
    table = smoothcert("map --sigma 0.5 --at 0.5,0.55,1").out
    assert "1,217" in table
    assert "0.0566" in table  # 0.05669...
    assert "1.9057" in table  # 1.90571..., the largest provable radius
    assert max(map(len, table.splitlines())) <= 80


def test_a_probability_is_never_above_1_and_a_certain_one_is_shown_as_1(smoothcert):
    options = "map --sigma 0.25 --method radii --radii 0,0.25 --samples 1000 --at 0.95,0.999,1"
    proved = [
        p
        for row in json.loads(smoothcert(f"{options} --json").out)["map"]
        for p in row["proved"].values()
    ]
    assert max(proved) == 1
    assert smoothcert(options).out.split()[-2:] == ["1.0000", "1.0000"]


def test_a_map_of_planned_samples_says_that_it_leaves_out_the_pilot(smoothcert):
    for method in ("fixed", "input-specific"):
        options = f"map --method {method} --sigma 0.5 --at 0.9"
        assert "Without the pilot of 1,000 samples." in " ".join(smoothcert(options).out.split())
        assert json.loads(smoothcert(f"{options} --json").out)["pilot_not_counted"] == 1_000
    for counted in (
        "--method fixed --known-labels",
        "--pilot-use reuse",
        "--method price --price 1e-6",
    ):
        assert "pilot of" not in smoothcert(f"map --sigma 0.5 --at 0.9 {counted}").out


def test_the_ideal_radius_of_a_certain_class_has_no_end(smoothcert):
    """The radius is infinite, which JSON cannot represent."""
    table = smoothcert("map --sigma 0.5 --reference ideal --at 0.9,1")
    assert table.code == 0
    assert "ideal radius" in table.out
    assert "inf" in table.out.split()
    rows = json.loads(smoothcert("map --sigma 0.5 --reference ideal --at 0.9,1 --json").out)["map"]
    assert [row["ideal radius"] for row in rows] == [pytest.approx(0.640775, abs=1e-6), None]
    assert [row["samples"] for row in rows][1] == 100_000


def test_counting_all_outcomes_is_not_random(smoothcert):
    table = smoothcert("map --method exact --noise splitting:1,255 --at .5,.501").out
    assert "Expected" not in table
    assert "certified" not in table
    assert ["0.501", "510", "100.0%", "0.0019"] in [
        line.split() for line in table.splitlines()
    ]  # 0.002, rounded down
    assert "0.0999 is just below 0.1" in " ".join(table.split())
    assert "just below" not in smoothcert("map --sigma 0.5 --at 0.9").out


def test_a_map_says_that_it_was_simulated(smoothcert):
    bets = "map --method radii --radii 0 --bound runner-up --known-labels --sigma 0.5 --samples 500 --at 0.9"
    assert "simulated inputs" in smoothcert(bets).out
    assert json.loads(smoothcert(f"{bets} --json").out)["simulated"]
    assert not json.loads(smoothcert("map --sigma 0.5 --at 0.9 --json").out)["simulated"]
