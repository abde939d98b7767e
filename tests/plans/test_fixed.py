import pytest

from smoothcert import Fixed, Gaussian


@pytest.mark.parametrize(("pilot_use", "drawn"), [("fresh", 10_000), ("reuse", 9_900)])
def test_every_input_gets_the_same(pilot_use, drawn):
    plan = Fixed(10_000, pilot=100, pilot_use=pilot_use)
    plan.for_noise(Gaussian(0.5))
    assert plan.after_pilot([0, 50, 100], Gaussian(0.5)).tolist() == [drawn] * 3
