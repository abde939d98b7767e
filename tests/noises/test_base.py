from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from tests.refusals import refused

from smoothcert import Additive, Certificate, Fixed, Look, Noise
from smoothcert.tasks.audit import fault


@dataclass(frozen=True)
class Steps(Noise):
    """A noise whose radius has steps: 1 for each tenth of p above 1/2."""

    unit: float = 1.0
    norm: ClassVar[str] = "l0"

    @property
    def draw(self):
        return Additive("uniform", 1.0)

    @property
    def deviation(self):
        return 0.5

    def radius(self, p):
        return self.unit * np.floor((np.asarray(p, float) - 0.5) * 10 + 1e-9)

    def probability(self, radius):
        return 0.5 + np.asarray(radius, float) / self.unit / 10


@pytest.mark.parametrize("law", ["normal", "uniform", "laplace"])
def test_a_draw_is_a_law_and_a_scale(law):
    assert Additive(law, "0.5") == Additive(law, 0.5)
    for scale in (0, -1, float("nan"), float("inf"), "wide"):
        with refused("not-between", name="scale", value=scale, low=0):
            Additive(law, scale)


def test_what_does_not_say_how_it_is_drawn_is_no_noise():
    @dataclass(frozen=True)
    class Silent(Noise):
        def radius(self, p):
            return p

        def probability(self, radius):
            return radius

    with pytest.raises(TypeError, match=r"deviation.*draw|draw.*deviation"):
        Silent()


def test_without_a_theorem_for_two_classes_the_rival_does_not_help():
    noise = Steps()
    assert (
        noise.radius_between([0.65, 0.99], [0.2, 0.0]).tolist()
        == noise.radius([0.65, 0.99]).tolist()
        == [1, 4]
    )


@pytest.mark.parametrize(("votes", "radius"), [(500, 0), (590, 0), (660, 1), (1_000, 4)])
def test_a_radius_with_steps_makes_certificates_that_hold(votes, radius):
    looks = [Look(100, {1: 90}), Look(1_000, {1: votes})]
    found = Certificate.from_votes(looks, plan=Fixed(1_000), noise=Steps())
    assert found.radius == radius
    assert found.abstained == (radius == 0)
    assert fault(found) is None


def test_a_noise_that_says_nothing_itself_claims_no_more_than_its_norm():
    @dataclass(frozen=True)
    class Rotation(Steps):
        norm: ClassVar[str] = "angle"

    @dataclass(frozen=True)
    class OnThirds(Steps):
        norm: ClassVar[str] = "linf"
        grid = (0.3, None)

    assert Steps().certified_change("3") == "change of at most 3 values"
    assert Rotation().certified_change("r") == "change of one kind (angle) that is smaller than r"
    assert (
        OnThirds().certified_change("r")
        == "change of the input in steps of 0.3 that is smaller than r in linf"
    )
