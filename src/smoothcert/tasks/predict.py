"""`predict`: the class of the smoothed classifier, or an abstention where the votes do not settle it."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2
from typing import Any

from scipy.special import betainc

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.plans import Look, OneLook
from smoothcert.smoothed import Smoothed
from smoothcert.tasks.certify import certify


@dataclass(frozen=True)
class Prediction:
    """The class that the smoothed classifier answers with, or None if the votes do not settle it."""

    prediction: int | None
    confidence: float
    """1 - p-value of the test that the two leading classes are equally likely."""
    look: Look


def predict(smoothed: Smoothed, x: Any, *, samples: int = 1000, alpha: float = 0.001) -> list[Prediction]:
    """The class of each input if it leads the runner-up beyond chance, else an abstention.

    Args:
        smoothed: The classifier.
        x: The inputs, as for `certify`.
        samples: Noisy copies of each input.
        alpha: The probability of a wrong answer, at most.
    """
    _check.between("alpha", alpha, 0, 1)
    if _check.whole("samples", samples, least=1) < (least := ceil(1 - log2(alpha))):
        raise InvalidInput(
            f"samples {samples} can never settle an answer at alpha {alpha:g}: even unanimous votes could be chance; "
            f"use at least {least}"
        )
    results = certify(smoothed, x, plan=OneLook(samples, alpha))
    return [_prediction(certificate.looks[0], alpha) for certificate in results]


def _prediction(look: Look, alpha: float) -> Prediction:
    first, second = [*sorted(look.votes.values(), reverse=True), 0, 0][:2]
    # Under equal chances the leader's votes are Binomial(first + second, 1/2); either class could have led.
    p_value = min(2 * float(betainc(first, second + 1, 0.5)), 1.0) if first else 1.0
    return Prediction(look.top if p_value <= alpha else None, 1 - p_value, look)
