from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refused

from smoothcert import Fixed, Uniform
from smoothcert.runs.logs import read_counts
from smoothcert.tasks.replay import read_population, simulate

LOGS = Path(__file__).parents[3] / "shared" / "logs"
NOISE = Uniform(3.4641)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "votes.tsv"
    path.write_text("idx\tlabel\tpredict\tcount\tsamples\n0\t3\t3\t900\t1000\n1\t4\t2\t600\t1000\n")
    return path


def test_votes_of_the_predicted_class_are_read(log):
    population, noise, _ = read_population(log, Fixed(1000), noise=NOISE)
    assert noise == NOISE
    assert population.p[:, 0].tolist() == [0.9, 0.6]
    assert population.label.tolist() == [0, 1]


def test_mistakes_are_told_in_one_sentence(log, tmp_path):
    with refused("no-noise"):
        read_population(log, Fixed(1000))
    with refused("samples-are-known"):
        read_population(log, Fixed(1000), noise=NOISE, log_samples=10)
    bad = tmp_path / "bad.tsv"
    bad.write_text("idx\tlabel\tpredict\tcount\tsamples\n0\t3\t3\t1001\t1000\n")
    with refused("impossible-count", row=1):
        read_counts(bad)
    other = tmp_path / "other.tsv"
    other.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n")
    assert read_counts(other) is None
    assert read_counts(tmp_path) is None


@pytest.mark.skipif(not LOGS.is_dir(), reason="no published logs here")
@pytest.mark.parametrize(
    ("name", "at_zero", "at_two"), [("uniform", 0.442, 0.361), ("split", 0.504, 0.420)]
)
def test_published_l1_votes_on_imagenet(name, at_zero, at_two):
    """The publishers spent alpha / 2 = .0005 on one side. Splitting certifies more than uniform noise."""
    plan = Fixed(100_000, pilot=1_000, alpha=0.0005)
    population, noise, _ = read_population(LOGS / f"imagenet-l1-{name}-2.0.tsv", plan, noise=NOISE)
    assert len(population) == 500
    found = simulate(population, plan, noise=noise, radii=[0, 2], repetitions=5)
    np.testing.assert_allclose(
        [*found.plan.certified_accuracy.values()], [at_zero, at_two], atol=0.006
    )
