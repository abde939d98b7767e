import json

import pytest

from smoothcert import Gaussian, InputSpecific, exact_coverage


def test_json_has_the_figures_of_the_library(smoothcert):
    answer = smoothcert(
        "coverage --sigma 0.5 --samples 200 --pilot 30 --kind relative --pilot-use reuse --json"
    )
    known = exact_coverage(
        InputSpecific(200, pilot=30, kind="relative", pilot_use="reuse"), Gaussian(0.5)
    )
    names = ("alpha", "worst_failure", "worst_p", "tie_failure", "valid")
    assert answer.code == 1
    found = json.loads(answer.out)
    assert {name: found[name] for name in names} == {name: getattr(known, name) for name in names}
    assert found["valid"] is False


def test_the_table_says_it_in_words(smoothcert):
    small = "coverage --sigma 0.5 --samples 200 --pilot 30"
    sound, reused = smoothcert(small), smoothcert(f"{small} --pilot-use reuse --method fixed")
    assert "The plan keeps its alpha of 0.001." in sound.out
    assert "does NOT keep its alpha" in reused.out
    assert (sound.code, reused.code) == (0, 1)


@pytest.mark.parametrize(
    "plan", ["--sigma 0.5 --samples 200 --known-labels", "--method exact --noise splitting:0.5,255"]
)
def test_tied_classes_are_only_told_if_a_pilot_chooses(smoothcert, plan):
    found = smoothcert(f"coverage {plan}")
    assert "class fixed in advance" in found.out
    assert "two tied classes" not in found.out
