import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import nn

from smoothcert.plans import AtRadii
from smoothcert.runs.formats import write_results
from smoothcert.runs.run import open_run
from smoothcert.tasks.audit import audit
from smoothcert.tasks.certify import certify
from smoothcert.tasks.compare import compare
from smoothcert.tasks.smoothed import Smoothed

SETTINGS = {"sigma": 0.25, "device": "cpu", "dtype": "float32", "batch": 500}
PLAN = {"samples": 300, "alpha": 0.01}


def linear(shift):
    """A classifier that answers 1 where the first number is above 0.5 + shift."""
    module = nn.Linear(2, 2)
    with torch.no_grad():
        module.weight[:] = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
        module.bias[:] = torch.tensor([0.5 + shift, 0.0])
    return module


@pytest.fixture(scope="module")
def data():
    x = np.random.default_rng(0).random((200, 2)).astype(np.float32)
    return x, (x[:, 0] > 0.5).astype(int)


def test_a_clear_difference_takes_few_inputs_and_agrees_with_runs_on_all(data, tmp_path):
    parts = []
    found = compare(
        linear(0),
        linear(0.4),
        *data,
        radius=0.1,
        out=tmp_path / "both",
        on_part=parts.append,
        **PLAN,
        **SETTINGS,
    )
    assert found.verdict == "worse"
    assert found.anytime
    assert len(found.a) < 150
    assert all(part.verdict == "undecided" for part in parts[:-1])
    plan = AtRadii([0.1], known_labels=True, **PLAN)
    alone = [
        certify(linear(shift), *data, plan=plan, out=tmp_path / f"{shift}", **SETTINGS)
        for shift in (0, 0.4)
    ]
    by_runs = compare(*alone)
    assert (by_runs.verdict, by_runs.anytime, len(by_runs.a)) == ("worse", False, 200)


def test_the_same_call_resumes_and_the_runs_are_ordinary_ones(data, tmp_path):
    class Stop(Exception):
        pass

    def interrupt(part):
        if len(part.a) >= 78:
            raise Stop

    def again(**changes):
        return compare(
            linear(0), linear(0.02), *data, radius=0.1, out=tmp_path, **PLAN | SETTINGS | changes
        )

    with pytest.raises(Stop):
        again(on_part=interrupt)
    sizes = []
    found = again(on_part=lambda part: sizes.append(len(part.a)))
    assert sizes[0] == 78  # what an earlier call has reached is not looked at again
    assert len(found.a) == 200
    assert found.verdict == "undecided"
    a, b = (open_run(tmp_path / name) for name in ("Linear-a", "Linear-b"))
    assert a.manifest.ids == b.manifest.ids != tuple(range(200))  # in the same random order
    assert not audit(a.path, redraw=3, model=linear(0), data=data).findings
    from_disk = compare(a, b)
    assert from_disk.anytime
    assert from_disk.differences[0].interval == found.differences[0].interval
    write_results(a, tmp_path / "a.csv")
    exported = compare(
        tmp_path / "a.csv", b
    )  # an export keeps the mark, and one of the two is enough
    assert exported.anytime
    assert exported.differences[0].interval == found.differences[0].interval
    with refused("other-configuration", names=["plan.samples"]):
        again(samples=500)


def test_models_with_a_noise_of_their_own_are_compared_as_they_are(data, tmp_path):
    a, b = (Smoothed(linear(0), sigma=sigma, device="cpu", batch=500) for sigma in (0.25, 0.1))
    found = compare(a, b, *data, radius=0.15, margin=20, limit=60, out=tmp_path, **PLAN)
    assert (found.a.noise.sigma, found.b.noise.sigma) == (0.25, 0.1)


def test_one_checkpoint_for_two_models_is_refused(data, tmp_path):
    with refused("weights-for-both"):
        compare(linear(0), linear(0), *data, radius=0.1, out=tmp_path, sigma=0.25, weights="x.pth")
