"""Runs of plans and noises that the package does not have: reports work for them, too."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from smoothcert.noises import Gaussian
from smoothcert.plans import AtRadii, Fixed
from smoothcert.plans.base import Plan, Proof
from smoothcert.statistics.bounds import lower_bound


@dataclass(frozen=True)
class Doubling(Plan):
    """Draws 100 samples, then as many again while fewer than 90% agree, at most three times."""

    samples: int = 800
    alpha: float = 0.001
    pilot: int = 0
    known_labels: bool = True
    name: ClassVar[str] = "doubling"

    def request(self, state):
        if state.look == 0:
            return 100
        if state.look == 4:
            return 0
        return np.where(np.asarray(state.count) < 0.9 * np.asarray(state.drawn), state.drawn, 0)[()]

    def prove(self, state):
        lower = lower_bound(state.count, np.maximum(state.drawn, 1), alpha=self.alpha / 4)
        return Proof.from_bounds(state, lower)

    def __str__(self):
        return "doubling 800"


@dataclass(frozen=True)
class Deciding(Fixed):
    """Stands for a plan that decides chosen radii."""

    name: ClassVar[str] = "deciding"

    @property
    def radii(self):
        return (0.25, 0.5)


@dataclass(frozen=True)
class Manhattan(Gaussian):
    """Stands for a noise with another norm."""

    norm: ClassVar[str] = "l1"


@pytest.fixture(scope="session")
def doubling_run(iss_run, altered):
    return altered(
        iss_run,
        name="doubling",
        plan=Doubling(),
        prediction=np.where(iss_run.wrong, -1, iss_run.prediction),
    )


@pytest.fixture(scope="session")
def deciding_run(iss_run, altered):
    radius = np.where(iss_run.radius >= 0.5, 0.5, np.where(iss_run.radius >= 0.25, 0.25, 0.0))
    kept = np.where(radius > 0, iss_run.prediction, -1)
    return altered(iss_run, name="deciding", plan=Deciding(10_000), radius=radius, prediction=kept)


@pytest.fixture(scope="session")
def l1_run(iss_run, altered):
    return altered(iss_run, name="manhattan", noise=Manhattan(0.5))


@pytest.fixture(scope="session")
def radii_run(on_disk):
    return on_disk("radii", AtRadii([0, 0.25, 0.75], samples=3_000, known_labels=True))
