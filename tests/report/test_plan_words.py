"""The page explains every plan in words."""

from dataclasses import dataclass
from html import unescape
from typing import ClassVar

import pytest

from smoothcert.plans import AtRadii, Combined, Exact, Fixed, InputSpecific, Plan, Price
from smoothcert.plans.coverage import caveat
from smoothcert.report.page import environment

PLANS = [
    Fixed(10_000),
    Fixed(10_000, known_labels=True),
    Fixed(10_000, bound="runner-up"),
    Fixed(10_000, pilot_use="reuse"),
    InputSpecific(10_000),
    InputSpecific(10_000, reference="ideal", kind="relative"),
    Price(10_000, price=1e-5),
    AtRadii([0, 0.5]),
    Combined((Fixed(1_000), AtRadii([0.5]))),
]


def explanation(plan):
    text = environment().get_template("plan.html").render(plan=plan)
    return " ".join(unescape(text).split())


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_an_explanation_says_what_the_plan_is_good_for_and_what_it_guarantees(plan):
    text = explanation(plan)
    assert " suits " in text
    assert text.endswith(".")
    promises = f"wrong with a probability of at most {plan.alpha:g}" in text
    assert promises == (caveat(plan) is None)
    assert (caveat(plan) is not None) == ("does not keep its promise in every case" in text)


def test_an_explanation_follows_the_options():
    assert "choose the class and do not count" in explanation(Fixed(10_000))
    assert "choose the class and count for the bound as well" in explanation(
        Fixed(10_000, pilot_use="reuse")
    )
    known = explanation(Fixed(10_000, known_labels=True))
    assert "The class is the label of the input. Every sample counts." in known
    assert "not certified" in known
    assert "leads without a majority" in explanation(InputSpecific(10_000, bound="runner-up"))
    assert "leads without a majority" not in explanation(InputSpecific(10_000))
    assert "within 0.05 of the radius that 10,000 samples would prove" in explanation(
        InputSpecific(10_000)
    )
    relative = explanation(InputSpecific(10_000, decline=0.1, kind="relative", reference="ideal"))
    assert "within 10% of the ideal radius" in relative
    assert "whether the radius is above 0, 0.25 or 0.5" in explanation(AtRadii([0, 0.25, 0.5]))
    assert "up to 29 times" in explanation(AtRadii([0.5], samples=10_000))
    words = explanation(Exact(255))
    assert "each of the 255 outcomes of the noise once" in words
    assert "Nothing is random: alpha is 0" in words


def test_combined_plans_name_all_and_explain_the_first():
    first, second = AtRadii([0.5]), Fixed(1_000)
    text = explanation(Combined((first, second)))
    assert str(second) in text
    assert text.endswith(explanation(first))


@dataclass(frozen=True)
class Own(Plan):
    """A plan without a pilot that brings no explanation."""

    samples: int = 255
    alpha: float = 0.01
    pilot: int = 0
    name: ClassVar[str] = "own"

    def request(self, state):
        raise NotImplementedError

    def prove(self, state):
        raise NotImplementedError

    def __str__(self):
        return "my own plan"


def test_a_plan_of_ones_own_is_explained_by_its_name():
    assert explanation(Own()) == (
        'The plan "my own plan" spends up to 255 samples on each input. The class is the one with most votes. '
        "Nothing proves that this plan keeps its alpha (0.01); coverage looks for where it fails."
    )
