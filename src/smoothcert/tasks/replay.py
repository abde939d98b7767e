"""Simulate what a plan would have cost and certified on the inputs of a published log or of a run.

Each radius of a log gives the count of votes behind it; a run contains its counts. We take count / samples as the
probability p of the class, and simulate the plan with seeded random votes. The radius at the full ceiling continues the
same votes, so that declines compare radii on the same noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert._user_errors import naming_user_errors
from smoothcert.errors import InvalidInput, setting
from smoothcert.noises import Gaussian, Noise
from smoothcert.noises.gaussian import is_gaussian
from smoothcert.plans import Plan
from smoothcert.plans.follow import proved
from smoothcert.plans.simulation import of_class
from smoothcert.plans.simulation import simulate as follow_simulated
from smoothcert.runs.formats import read_results
from smoothcert.runs.logs import read_counts, read_votes, votes
from smoothcert.runs.results import Results
from smoothcert.runs.run import Run
from smoothcert.runs.words import bias_of_p
from smoothcert.statistics import metrics
from smoothcert.statistics.bounds import Array, Counts, lower_bound


@dataclass(frozen=True)
class Outcome:
    """Averages over repetitions of one way of sampling.

    Args:
        samples: Average samples per input; every forward pass counts, pilots and abstentions included.
        acr: Average certified radius.
        mad: The largest decline of a radius against the ceiling. None for a plan that decides radii, and for one that
            bounds other classes: the ceiling is simulated with the usual bound.
        abstained: Share of inputs without a certificate.
        certified_accuracy: Certified accuracy by radius.
    """

    samples: float
    acr: float
    mad: float | None
    abstained: float
    certified_accuracy: dict[float, float]


@dataclass(frozen=True)
class Replay:
    """A plan, compared with fixed sampling at the same average cost and at the full ceiling.

    Args:
        inputs: The number of inputs.
        repetitions: How often the plan was simulated.
        plan: What the plan gives.
        fixed: What fixed sampling gives at the same average cost.
        ceiling: What fixed sampling gives at the ceiling of the plan.
        labelled: Whether any input has a label. Without labels, accuracies have no meaning.
    """

    inputs: int
    repetitions: int
    plan: Outcome
    fixed: Outcome
    ceiling: Outcome
    labelled: bool = True

    def figures(self, outcome: Outcome) -> dict[str, Any]:
        """One of the outcomes as a dictionary for JSON; None stands for what labels would tell.

        Args:
            outcome: The outcome.
        """
        shares = {
            f"{r:g}": share if self.labelled else None
            for r, share in outcome.certified_accuracy.items()
        }
        return vars(outcome) | {
            "acr": outcome.acr if self.labelled else None,
            "certified_accuracy": shares,
        }

    def plain(self) -> dict[str, Any]:
        """The result as a dictionary for JSON."""
        plan, fixed, ceiling = map(self.figures, (self.plan, self.fixed, self.ceiling))
        about = {
            "inputs": self.inputs,
            "repetitions": self.repetitions,
            "average_samples": plan.pop("samples"),
        }
        return about | plan | {"fixed": fixed, "ceiling": ceiling}


@dataclass(frozen=True)
class Population:
    """Inputs whose classes have known probabilities.

    Args:
        p: The probability of each class, shape (inputs, classes). Where they sum to less than 1, the rest is the
            probability of an output that is not finite and votes for no class.
        label: The label of each input as an index of these classes; -1 if it is none of them.
        chosen: The class that the pilot chooses, if the log contains it; None lets a simulated pilot choose.
    """

    p: Array
    label: Counts
    chosen: Counts | None = None

    def __len__(self) -> int:
        return len(self.p)


def from_shares(p: ArrayLike, correct: ArrayLike) -> Population:
    """A population of which only the probability of the predicted class is known, and whether it is the label.

    If the prediction is wrong, we assume that the label has the probability 0.6 (1 - p).
    """
    p, correct = _check.probabilities("p", p), np.asarray(correct, bool)
    return Population(
        np.stack([p, 0.6 * (1 - p), 0.4 * (1 - p)], axis=1),
        np.where(correct, 0, 1),
        np.zeros(len(p), np.int64),
    )


def from_votes(votes: ArrayLike, label: ArrayLike, samples: ArrayLike | None = None) -> Population:
    """A population of which the votes for all classes are known."""
    counts = np.asarray(votes, float)
    drawn = counts.sum(axis=1) if samples is None else np.asarray(samples, float)
    return Population(counts / np.maximum(drawn, 1)[:, None], np.asarray(label, np.int64))


def read_population(
    path: str | Path,
    plan: Plan,
    *,
    noise: Noise | None = None,
    log_samples: int | None = None,
    log_alpha: float | None = None,
    abstained_p: float = 0.49,
) -> tuple[Population, Noise, str | None]:
    """Read the population of a published log, a file of votes, a run or an export.

    Returns it with the noise, and with a remark for the reader or None.
    """
    votes, counted = read_votes(path), read_counts(path)
    results = read_results(path) if votes is None and counted is None else None
    if results is not None:
        if not len(results):
            raise InvalidInput(f"{path} holds no certificates yet; run certify again to go on")
        # The options of a noise say nothing about the size of an input, which the run knows.
        if noise is None or (
            results.noise and getattr(noise, "size", 0) is None and noise.same_kind(results.noise)
        ):
            noise = results.noise
    if noise is None:
        raise InvalidInput(f"{path} does not contain its noise: give {setting('noise')}")
    if votes is not None:
        return from_votes(*votes), noise, None
    published = (
        results is not None and results.noise is None
    )  # a published log, or an export of one
    if not published and not (log_samples is None and log_alpha is None):
        raise InvalidInput(
            f"{path} contains its samples: leave out {setting('log_samples')} and {setting('log_alpha')}"
        )
    if counted is not None:
        return from_shares(*counted), noise, None
    assert results is not None
    of_label = results.known_labels  # p is that of the label
    if plan.known_labels and results.unlabelled:
        raise InvalidInput(
            f"{path} has inputs without a label, and {setting('known_labels', True)} needs one for every input"
        )
    samples, alpha = (
        100_000 if log_samples is None else log_samples,
        plan.alpha if log_alpha is None else _check.alpha("log_alpha", log_alpha),
    )
    p = probabilities(results, noise=noise, samples=samples, alpha=alpha, abstained_p=abstained_p)
    remark = _remark(results, plan.samples)
    if published:
        remark = f"Radii in the log are taken to be of {samples:,} samples per input (see {setting('log_samples')})."
    elif isinstance(results, Run) and (plan.known_labels or plan.bound == "runner-up" or of_label):
        return _population_of(results), noise, remark
    elif of_label and not plan.known_labels:
        raise InvalidInput(
            f"{path} was certified with known labels and does not tell which class a pilot would choose: replay the "
            f"folder of the run, or use {setting('known_labels', True)}"
        )
    population = from_shares(p, np.ones(len(results), bool) if of_label else results.correct)
    label = np.where(results.label == _check.NO_CLASS, _check.NO_CLASS, population.label)
    return replace(population, label=label), noise, remark


def _population_of(run: Run) -> Population:
    """The population of a run, from its votes for all classes. Outputs that are not finite vote for no class."""
    votes = np.zeros((len(run), run.manifest.classes))
    for row, certificate in zip(votes, run.certificates(), strict=True):
        for look in certificate.looks:
            for c, count in look.votes.items():
                row[c] += count
    return from_votes(votes, run.label, run.samples)


def _remark(results: Results, ceiling: int) -> str | None:
    """What makes the p of a run differ from the true ones; None if nothing is known."""
    remarks = []
    bias = bias_of_p(results)
    if bias is not None:
        remarks.append(f"The run {bias}.")
    unanimous = (
        (results.counted > 0) & (results.count == results.counted) & (results.counted < ceiling)
    )
    if count := int(unanimous.sum()):
        most = int(results.counted[unanimous].max())
        which, whose = ("1 input was", "its") if count == 1 else (f"{count} inputs were", "their")
        remarks.append(
            f"{which} unanimous in at most {most:,} samples. We take {whose} p as 1, so large radii are too frequent."
        )
    return " ".join(remarks) or None


def probabilities(
    results: Results,
    *,
    noise: Noise,
    samples: int = 100_000,
    alpha: float = 0.001,
    abstained_p: float = 0.49,
) -> Array:
    """The probability of the predicted class for every input: from the votes of a run, or from the radii of a log.

    Args:
        results: The run, export or log.
        noise: The smoothing noise.
        samples: Samples per input of a log.
        alpha: The alpha of a log.
        abstained_p: The probability to assume where it is not known, as for abstentions in a log.
    """
    _check.between("abstained_p", abstained_p, 0, 1)
    if results.noise is None:
        p = votes(results, noise=noise, samples=samples, alpha=alpha) / samples
        return np.where(results.abstained, abstained_p, p)
    if results.noise != noise and not (
        isinstance(noise, Gaussian) and is_gaussian(results.noise, noise.sigma)
    ):
        raise InvalidInput(
            f"{results.name} was certified under {results.noise}, so its votes say nothing about {noise}"
        )
    return np.where(np.isnan(results.p), abstained_p, results.p)


def simulate(
    population: Population,
    plan: Plan,
    *,
    noise: Noise,
    radii: list[float] | None = None,
    repetitions: int = 20,
    seed: int = 0,
) -> Replay:
    """Simulate a plan on inputs whose classes have known probabilities.

    Args:
        population: The inputs.
        plan: The plan to simulate.
        noise: The smoothing noise.
        radii: Radii for certified accuracy.
        repetitions: How often to simulate.
        seed: The seed of the simulated votes.
    """
    _check.whole("repetitions", repetitions, least=1)
    rng = np.random.default_rng(_check.whole("seed", seed))
    if noise.outcomes is not None:
        raise InvalidInput(
            f"{noise} is not random: its certificates are exact, so there are no votes to simulate"
        )
    plan = plan.primary.for_noise(noise)
    if plan.bound == "runner-up" and population.chosen is not None:
        raise InvalidInput(
            f"only the share of the predicted class is known here, and {setting('bound', 'runner-up')} needs the votes "
            "of all classes: replay the folder of a run, or a file of votes"
        )
    shape, fixed_class = (
        (repetitions, len(population)),
        population.label if plan.known_labels else population.chosen,
    )
    chosen = None if fixed_class is None else np.broadcast_to(fixed_class, shape)
    end = follow_simulated(plan, noise, population.p, shape, rng, chosen)
    with naming_user_errors():
        proof = proved(plan, end.state)
    radius = np.broadcast_to(np.asarray(proof.radius, float), shape)
    predicted = np.broadcast_to(proof.prediction, shape)
    p = of_class(population.p, predicted)
    correct = predicted == population.label
    cost = float(np.mean(end.samples))
    # Fixed sampling at the ceiling continues the same votes, with the usual bound.
    full = proof.count + rng.binomial(plan.samples - np.broadcast_to(proof.counted, shape), p)
    # Fixed sampling at the same cost also pays for a pilot like that of the plan.
    n = max(round(cost) - (plan.most_samples - plan.samples), 1)
    fixed = rng.binomial(n, p, size=shape)
    full_of_fixed = fixed + rng.binomial(plan.samples - n, p, size=shape)

    def usual(count: Counts, samples: int) -> Array:
        radius = np.asarray(noise.certified_radius(lower_bound(count, samples, alpha=plan.alpha)))
        return np.where(radius > 0, radius, np.nan)

    reference = usual(full, plan.samples)
    if radii is None:
        largest = float(noise.radius(lower_bound(plan.samples, plan.samples, alpha=plan.alpha)))
        radii = list(plan.radii or metrics.default_radii(largest))
    radii = _check.radii(radii)
    closed = plan.radii is not None
    own = _summary(cost, radius, reference, correct, radii, closed=closed)
    return Replay(
        len(population),
        repetitions,
        replace(own, mad=None) if plan.basis() is None or plan.bound == "runner-up" else own,
        _summary(cost, usual(fixed, n), usual(full_of_fixed, plan.samples), correct, radii),
        _summary(plan.most_samples, reference, reference, correct, radii),
        labelled=bool((population.label >= 0).any()),
    )


def _summary(
    cost: float,
    radius: Array,
    reference: Array,
    correct: NDArray[np.bool_],
    radii: list[float],
    closed: bool = False,
) -> Outcome:
    right = correct & ~np.isnan(radius)
    known = np.nan_to_num(radius)
    accuracy = metrics.certified_accuracy(known, right, radii, closed=closed)
    lost = [
        metrics.largest_decline(r, f) for r, f in zip(known, np.nan_to_num(reference), strict=True)
    ]
    return Outcome(
        samples=cost,
        acr=metrics.average_certified_radius(known, right),
        mad=float(np.mean(lost)),
        abstained=float(np.mean(np.isnan(radius))),
        certified_accuracy=dict(
            zip(radii, np.mean(np.atleast_2d(accuracy), axis=0).tolist(), strict=True)
        ),
    )
