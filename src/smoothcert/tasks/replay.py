"""`replay`: simulate what a plan would have cost and certified on the inputs of a log or of a run.

Each radius of a log gives the count of votes behind it; a run contains its counts. We take count /
samples as the probability p of the class, and simulate the plan with seeded random votes. The
radius at the full ceiling continues the same votes, so that declines compare radii on the same
noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert._user_errors import naming_user_errors
from smoothcert.errors import InvalidInput, number_of, setting
from smoothcert.noises import Gaussian, Noise
from smoothcert.noises.gaussian import is_gaussian
from smoothcert.plans import Look, Plan
from smoothcert.plans.base import check_top
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
        samples: Average samples per input, pilots and abstentions included.
        acr: Average certified radius. Without labels, accuracies have no meaning, and it is None.
        mad: The largest decline of a radius against the ceiling. None for a plan that decides
            radii, and for one that bounds other classes: the ceiling is simulated with the usual
            bound.
        abstained: Share of inputs without a certificate.
        certified_accuracy: Certified accuracy by radius, None without labels.
    """

    samples: float
    acr: float | None
    mad: float | None
    abstained: float
    certified_accuracy: dict[float, float | None]

    def plain(self) -> dict[str, Any]:
        """The figures as a dictionary for JSON."""
        shares = {f"{r:g}": share for r, share in self.certified_accuracy.items()}
        return vars(self) | {"certified_accuracy": shares}


@dataclass(frozen=True)
class Replay:
    """A plan, compared with fixed sampling at the same average cost and at the full ceiling.

    Args:
        inputs: The number of inputs.
        repetitions: How often the plan was simulated.
        plan: What the plan gives.
        fixed: What fixed sampling gives at the same average cost.
        ceiling: What fixed sampling gives at the ceiling of the plan.
    """

    inputs: int
    repetitions: int
    plan: Outcome
    fixed: Outcome
    ceiling: Outcome

    def plain(self) -> dict[str, Any]:
        """The result as a dictionary for JSON."""
        plan = self.plan.plain()
        return {
            "inputs": self.inputs,
            "repetitions": self.repetitions,
            "average_samples": plan.pop("samples"),
            **plan,
            "fixed": self.fixed.plain(),
            "ceiling": self.ceiling.plain(),
        }


@dataclass(frozen=True)
class Population:
    """Inputs whose classes have known probabilities.

    Args:
        p: The probability of each class, shape (inputs, classes). Where they sum to less than 1,
            the rest is the probability of an output that is not finite and votes for no class.
        label: The label of each input as an index of these classes; -1 if it is none of them.
        chosen: The class that the pilot chooses, if the log contains it; None lets a simulated
            pilot choose.
    """

    p: Array
    label: Counts
    chosen: Counts | None = None

    def __len__(self) -> int:
        return len(self.p)


def from_shares(p: ArrayLike, correct: ArrayLike) -> Population:
    """A population of which only the probability p of the predicted class is known.

    `correct` says whether that class is the label. If it is not, we assume that the label has the
    probability 0.6 (1 - p).
    """
    p = _check.probabilities("p", p)
    classes = np.stack([p, 0.6 * (1 - p), 0.4 * (1 - p)], axis=1)
    label = np.where(np.asarray(correct, bool), 0, 1)
    return Population(classes, label, chosen=np.zeros(len(p), np.int64))


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
    votes = read_votes(path)
    if votes is not None:
        return from_votes(*votes), _needed_noise(path, noise), None
    shares = read_counts(path)
    if shares is not None:
        noise = _needed_noise(path, noise)
        _check_no_log_settings(path, log_samples, log_alpha)
        return from_shares(*shares), noise, None
    results = read_results(path)
    if not len(results):
        raise InvalidInput(
            "no-certificates",
            "{path} holds no certificates yet; run certify again to go on",
            path=path,
        )
    noise = _needed_noise(path, noise, results.noise)
    samples = 100_000 if log_samples is None else log_samples
    alpha = plan.alpha if log_alpha is None else _check.alpha("log_alpha", log_alpha)
    p = probabilities(results, noise=noise, samples=samples, alpha=alpha, abstained_p=abstained_p)
    remark: str | None = (
        f"Radii in the log are taken to be of {samples:,} samples per input "
        f"(see {setting('log_samples')})."
    )
    if results.noise is not None:
        _check_no_log_settings(path, log_samples, log_alpha)
        remark = _remark(results, plan.samples)
    return _population_of(results, p, plan, path), noise, remark


def _needed_noise(path: str | Path, given: Noise | None, recorded: Noise | None = None) -> Noise:
    """The noise that is given or recorded."""
    if recorded is not None and (given is None or given.same_kind(recorded)):
        return recorded  # it knows the size of its inputs
    if given is None:
        raise InvalidInput(
            "no-noise",
            "{path} does not contain its noise: give `noise`",
            path=path,
        )
    return given


def _check_no_log_settings(path: str | Path, samples: int | None, alpha: float | None) -> None:
    if samples is not None or alpha is not None:
        raise InvalidInput(
            "samples-are-known",
            "{path} contains its samples: leave out `log_samples` and `log_alpha`",
            path=path,
        )


def _population_of(results: Results, p: Array, plan: Plan, path: str | Path) -> Population:
    """The population of a run, an export or a log, whose predicted classes have probability p."""
    if plan.known_labels and results.unlabelled:
        raise InvalidInput(
            "unlabelled-inputs",
            "{path} has inputs without a label, and `known_labels=True` needs one for every input",
            path=path,
        )
    needs_all_votes = plan.known_labels or _bounds_others(plan) or results.known_labels
    if isinstance(results, Run) and needs_all_votes:
        return from_votes(_votes_of(results), results.label, results.samples)
    if results.known_labels and not plan.known_labels:
        raise InvalidInput(
            "no-class-of-pilot",
            "{path} was certified with known labels and does not tell which class a pilot would "
            "choose: replay the folder of the run, or use `known_labels=True`",
            path=path,
        )
    # With known labels, p is that of the label.
    population = from_shares(p, results.correct | results.known_labels)
    label = np.where(results.label == _check.NO_CLASS, _check.NO_CLASS, population.label)
    return replace(population, label=label)


def _votes_of(run: Run) -> Counts:
    """The votes of each input for each class."""
    votes = np.zeros((len(run), run.manifest.classes), np.int64)
    for row, certificate in zip(votes, run.certificates(), strict=True):
        # Outputs that are not finite vote for no class.
        for c, count in sum(certificate.looks, Look(0, {})).votes.items():
            row[c] = count
    return votes


def _remark(results: Results, ceiling: int) -> str | None:
    """What makes the p of a run differ from the true ones; None if nothing is known."""
    remarks = []
    bias = bias_of_p(results)
    if bias is not None:
        remarks.append(f"The run {bias}.")
    is_unanimous = (results.counted > 0) & (results.count == results.counted)
    unanimous = is_unanimous & (results.counted < ceiling)
    count = int(unanimous.sum())
    if count:
        most = int(results.counted[unanimous].max())
        were = "was" if count == 1 else "were"
        remarks.append(
            f"{number_of(count, 'input')} {were} unanimous in at most {most:,} samples. "
            "We take p as 1 there, so large radii are too frequent."
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
    """The probability of the predicted class, from the votes of a run or from the radii of a log.

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
    same_gaussian = isinstance(noise, Gaussian) and is_gaussian(results.noise, noise.sigma)
    if results.noise != noise and not same_gaussian:
        raise InvalidInput(
            "other-noise",
            "{name} was certified under {recorded}, so its votes say nothing about {noise}",
            name=results.name,
            recorded=results.noise,
            noise=noise,
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
    _check_votes_known(population, plan.primary, noise)
    plan = plan.primary.for_noise(noise)
    fixed_class = population.label if plan.known_labels else population.chosen
    shape = (repetitions, len(population))
    chosen = None
    if fixed_class is not None:
        chosen = np.broadcast_to(fixed_class, shape)
    end = follow_simulated(plan, noise, population.p, shape, rng, chosen)
    with naming_user_errors():
        proof = proved(plan, end.state)
    radius = np.broadcast_to(np.asarray(proof.radius, float), shape)
    predicted = np.broadcast_to(proof.prediction, shape)
    p = of_class(population.p, predicted)
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
    correct = None
    if (population.label >= 0).any():
        correct = predicted == population.label
    summary = partial(_summary, correct=correct, radii=_check.radii(radii))
    of_plan = summary(cost, radius, reference, closed=plan.radii is not None)
    if plan.basis() is None or _bounds_others(plan):
        of_plan = replace(of_plan, mad=None)
    return Replay(
        len(population),
        repetitions,
        of_plan,
        fixed=summary(cost, usual(fixed, n), usual(full_of_fixed, plan.samples)),
        ceiling=summary(plan.most_samples, reference, reference),
    )


def _check_votes_known(population: Population, plan: Plan, noise: Noise) -> None:
    """Refuse a simulation of votes that are not random, or of which too little is known."""
    if noise.outcomes is not None:
        raise InvalidInput(
            "noise-not-random",
            "{noise} is not random: its certificates are exact, so there are no votes to simulate",
            noise=noise,
        )
    if _bounds_others(plan) and population.chosen is not None:
        raise InvalidInput(
            "votes-needed",
            'only the share of the predicted class is known here, and "{plan}" needs the votes of '
            "all classes: replay the folder of a run, or a file of votes",
            plan=plan,
        )
    check_top(plan, population.p.shape[1])


def _bounds_others(plan: Plan) -> bool:
    """Whether proofs rest on the votes for other classes, too."""
    return plan.bound == "runner-up" or plan.top > 1


def _summary(
    cost: float,
    radius: Array,
    reference: Array,
    *,
    correct: NDArray[np.bool_] | None,
    radii: list[float],
    closed: bool = False,
) -> Outcome:
    at_least_0 = np.nan_to_num(radius)
    acr = None
    shares: dict[float, float | None] = dict.fromkeys(radii)
    if correct is not None:
        is_right = correct & ~np.isnan(radius)
        acr = metrics.average_certified_radius(at_least_0, is_right)
        accuracy = metrics.certified_accuracy(at_least_0, is_right, radii, closed=closed)
        means = np.mean(np.atleast_2d(accuracy), axis=0).tolist()
        shares = dict(zip(radii, means, strict=True))
    pairs = zip(at_least_0, np.nan_to_num(reference), strict=True)
    return Outcome(
        samples=cost,
        acr=acr,
        mad=float(np.mean([metrics.largest_decline(*pair) for pair in pairs])),
        abstained=float(np.mean(np.isnan(radius))),
        certified_accuracy=shares,
    )
