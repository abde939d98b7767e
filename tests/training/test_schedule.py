import itertools

import pytest

from smoothcert.training.recipe import cosine, onecycle, step


def test_cosine_falls_from_one_over_a_half_to_zero():
    assert [cosine(done) for done in (0, 0.5, 1)] == pytest.approx([1, 0.5, 0])


def test_step_divides_by_ten_after_each_third():
    assert [step(done) for done in (0, 29 / 90, 30 / 90, 60 / 90, 89 / 90)] == pytest.approx(
        [1, 1, 0.1, 0.01, 0.01]
    )


def test_onecycle_rises_to_one_and_falls_to_zero_without_a_jump():
    assert [onecycle(done) for done in (0, 0.3, 1)] == pytest.approx([0.04, 1, 0], abs=1e-12)
    values = [onecycle(i / 1000) for i in range(1001)]
    assert max(abs(a - b) for a, b in itertools.pairwise(values)) < 0.01
