"""Fixtures with two runs on the same simulated inputs and draws: input-specific and fixed sampling."""

import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import settings

from smoothcert.noises import Gaussian
from smoothcert.plans import Case, Certificate, Fixed, InputSpecific, Look, Plan
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.results import Results
from smoothcert.runs.run import open_run

# If processes share cores, threads that wait for each other make small networks slow. torch reads this when it is
# imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Background processes of a shell ignore Ctrl-C, and their children inherit this. Some tests send Ctrl-C to children.
signal.signal(signal.SIGINT, signal.default_int_handler)

# CI uses the same examples for every change. A developer gets new ones each time. There is no deadline, because on
# shared cores any example may take long.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


def _manifest(plan: Plan, *, inputs: int, seed: int) -> Manifest:
    return Manifest(
        model="simulated",
        classes=3,
        data="simulated",
        data_hash="1" * 16,
        ids=tuple(range(0, 10 * inputs, 10)),
        noise=Gaussian(0.5),
        plan=plan,
        seed=seed,
        device="cpu",
        dtype="float32",
        compile="none",
        weights_hash="0" * 16,
        values=(0.0, 1.0),
    )


def _simulate(name: str, plan: Plan, *, inputs: int = 60, seed: int = 0) -> Results:
    """Three classes. The p of the label runs from .3 to 1, so that some inputs are wrong and some are abstentions."""
    noise = Gaussian(0.5)

    def certificate(id: int) -> Certificate:
        p = min(0.3 + 0.75 * id / inputs, 1.0)
        draws = np.random.default_rng([seed, id]).random(plan.samples + 10_000)
        label = np.searchsorted([p, p + 0.8 * (1 - p)], draws, side="right")
        looks: list[Look] = []
        drawn = 0
        while more := Case(plan, noise, looks=looks).more:
            votes = np.bincount(label[drawn : drawn + more], minlength=3)
            looks.append(Look(more, {c: int(n) for c, n in enumerate(votes) if n}))
            drawn += more
        return Certificate.from_votes(
            looks, plan=plan, noise=noise, id=10 * id, label=0, seconds=1e-5 * drawn
        )

    return Results.from_certificates(
        name, map(certificate, range(inputs)), manifest=_manifest(plan, inputs=inputs, seed=seed)
    )


@pytest.fixture(scope="session")
def iss_run() -> Results:
    return _simulate("iss", InputSpecific(10_000, decline=0.05))


@pytest.fixture(scope="session")
def fixed_run() -> Results:
    return _simulate("fixed", Fixed(10_000))


@pytest.fixture(scope="session")
def altered():
    """The same results with other fields."""
    return replace


@pytest.fixture(scope="session")
def simulate():
    """A run of another plan over the same inputs."""
    return _simulate


@pytest.fixture(scope="session")
def on_disk(tmp_path_factory):
    """A run in a folder of its own, whose inputs have a share of votes for their label from 30% to `most`."""

    def write(name, plan, *, inputs=40, most=1.0):
        folder, noise = tmp_path_factory.mktemp("runs") / name, Gaussian(0.5)
        folder.mkdir()
        ids = list(range(0, 10 * inputs, 10))
        with Journal(folder, write=True) as journal:
            journal.write_manifest(_manifest(plan, inputs=inputs, seed=0).plain())
            for id, p in zip(ids, np.linspace(0.3, most, inputs), strict=True):
                votes = np.random.default_rng(id).random(plan.most_samples) < p
                looks, drawn = [], 0
                while more := Case(plan, noise, 0, looks).more:
                    count = int(votes[drawn : drawn + more].sum())
                    looks.append(Look(more, {0: count, 1: more - count}))
                    drawn += more
                journal.add(
                    Certificate.from_votes(looks, plan=plan, noise=noise, id=id, label=0), {}
                )
        return open_run(folder)

    return write
