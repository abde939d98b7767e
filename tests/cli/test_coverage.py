import json

import pytest

SETTINGS = "coverage --sigma 0.5 --samples 100000 --pilot 1000 --decline 0.05 --kind relative"


def test_coverage_tells_that_reuse_is_not_sound(smoothcert):
    answer = smoothcert(f"{SETTINGS} --pilot-use reuse --json")
    assert answer.code == 1
    found = json.loads(answer.out)
    assert found["alpha"] == 0.001
    assert found["worst_failure"] == pytest.approx(0.001044, abs=2e-6)
    assert found["worst_p"] == pytest.approx(0.60, abs=0.01)
    assert found["tie_failure"] == pytest.approx(0.00144, abs=1e-5)
    assert found["valid"] is False


def test_coverage_tells_that_fresh_is_sound(smoothcert):
    answer = smoothcert(f"{SETTINGS} --pilot-use fresh --json")
    assert answer.code == 0
    found = json.loads(answer.out)
    assert max(found["worst_failure"], found["tie_failure"]) <= found["alpha"]
    assert found["valid"] is True


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
