import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

from smoothcert import Gaussian, SampleMap
from smoothcert.statistics.sample_map import refined_grid

REFERENCE_P = [0.55, 0.6, 0.7, 0.8, 0.9, 0.95, 0.999, 1]
REFERENCE = {
    ("absolute", 0.05): [1217, 1235, 1318, 1513, 2051, 2909, 21374, 67040],
    ("absolute", 0.01): [14538, 14692, 15393, 16938, 20721, 25766, 66338, 92244],
    ("absolute", 0.10): [0, 351, 375, 432, 594, 862, 8678, 45371],
    ("relative", 0.01): [83843, 70136, 51280, 39458, 32396, 31290, 55481, 85768],
    ("relative", 0.05): [46887, 25775, 11261, 6389, 4369, 4086, 13038, 47053],
}


@st.composite
def maps(draw):
    kind = draw(st.sampled_from(["absolute", "relative"]))
    sigma = draw(st.sampled_from([0.12, 0.25, 0.5, 1.0]))
    samples = draw(st.sampled_from([1_000, 10_000, 100_000, 500_000]))
    decline = draw(st.floats(0.005, 0.3))
    return SampleMap(Gaussian(sigma), samples, decline * (sigma if kind == "absolute" else 1), kind)


@pytest.mark.parametrize(("kind", "decline"), REFERENCE)
def test_the_map_has_its_reference_values(kind, decline):
    psi = SampleMap(Gaussian(0.5), 100_000, decline, kind, alpha=0.001)
    assert np.abs(psi(REFERENCE_P) - REFERENCE[kind, decline]).max() <= 1


def test_the_worked_example_of_the_paper():
    psi = SampleMap(Gaussian(0.5), 100_000, decline=0.0042)
    assert psi([0.51, 0.99]) == pytest.approx([35_000, 65_000], rel=0.02)
    assert psi.radius(100_000, 0.99) - psi.radius(50_000, 0.99) == pytest.approx(0.0075, abs=5e-5)


@settings(deadline=None)
@given(maps(), st.one_of(st.floats(0, 1), st.floats(-6, -1).map(lambda e: 1 - 10**e)))
def test_the_map_is_minimal(psi, p):
    k, required = int(psi(p)), float(psi.required_radius(p))
    if required <= 0:
        assert k == 0
        return
    assert 1 <= k <= psi.samples
    assert psi.radius(k, p) >= required - 1e-9
    assert k == 1 or psi.radius(k - 1, p) < required + 1e-9


@settings(max_examples=30, deadline=None)
@given(maps())
def test_the_absolute_map_never_decreases_and_the_relative_one_falls_then_rises(psi):
    needed = psi(refined_grid(1500))
    steps = np.diff(needed[needed > 0])
    if psi.kind == "absolute":
        assert np.all(steps >= 0)
    else:
        falls, rises = np.flatnonzero(steps < 0), np.flatnonzero(steps > 0)
        assert len(rises) == 0 or len(falls) == 0 or falls.max() < rises.min()


@settings(max_examples=30, deadline=None)
@given(maps(), st.lists(st.floats(0, 1), min_size=1), st.floats(-1e-3, 2e-3))
def test_a_look_up_on_the_grid_of_the_paper_only_rounds_up(psi, p, beside_the_leap):
    grid = refined_grid(1500)
    leap = grid[psi.required_radius(grid) > 0].min()
    p = np.clip([*p, leap, leap + beside_the_leap], 0, 1)
    found = psi.on_paper_grid(p)
    assert np.all(found >= psi(p))
    assert np.all(found <= psi.samples)


def test_unanimity_costs_less_when_more_decline_is_agreed():
    needed = [int(SampleMap(Gaussian(0.5), 100_000, d)(1.0)) for d in (0.01, 0.05, 0.1, 0.5)]
    assert needed == sorted(needed, reverse=True)


@pytest.mark.parametrize(
    ("settings", "code", "fields"),
    [
        ({"samples": 9}, "never-certifies", {"least": 10}),
        ({"samples": 10, "alpha": 0.5**10}, "never-certifies", {"least": 11}),
        ({"samples": 0}, "too-small", {"name": "samples", "value": 0}),
        ({"samples": 10.5}, "not-whole", {"value": 10.5}),
        ({"samples": math.nan}, "not-whole", {"name": "samples"}),
        ({"samples": True}, "not-whole", {"value": True}),
        ({"samples": 10**10}, "samples-out-of-range", {"samples": 10**10}),
        ({"decline": math.nan}, "not-between", {"name": "decline"}),
        ({"alpha": 0.95}, "not-an-alpha", {"value": 0.95}),
    ],
)
def test_bad_settings_are_named(settings, code, fields):
    with refused(code, **fields):
        SampleMap(Gaussian(0.5), **settings)


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_p_must_be_a_probability(p):
    with refused("not-probability", name="p"):
        SampleMap(Gaussian(0.5))(p)


def test_settings_are_taken_as_numbers():
    psi = SampleMap(Gaussian(0.5), samples=np.int64(1000), decline="0.05", alpha=np.float32(0.25))
    assert [type(v) for v in (psi.samples, psi.decline, psi.alpha)] == [int, float, float]
