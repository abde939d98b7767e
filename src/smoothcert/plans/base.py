"""What a plan is: how many samples an input gets, and what its votes prove.

A plan is defined once, on arrays of states: `request` says how many more samples each state gets, `lower_bound` which
bound on the probability of the class it proves. One input, a replay of 10,000 inputs, and the exact failure probability
(a forward pass over all states) use the same two functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from smoothcert._registry import Recorded, naming_users_code
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.plans.records import RIVALS, Boundaries, Look, Outlook, Path, Proof, State


class Plan(Recorded, ABC):
    """Base of all plans. A subclass is a frozen dataclass with `request` and `lower_bound`.

    The first look is the pilot. It chooses the class, unless the label is known. Its votes count for the proof only if
    `pilot_counts`; a plan without a pilot needs known labels.
    """

    name: ClassVar[str]
    """What it is called on the command line and in tables."""
    adaptive: ClassVar[bool] = True
    """Whether inputs get different numbers of samples."""
    enumerates: ClassVar[bool] = False
    """Whether the plan counts all outcomes of a noise instead of sampling."""
    remembers: ClassVar[bool] = False
    """Whether `request` reads `State.lower`, so that what was proved at an earlier look matters for the next."""

    samples: int
    """The ceiling: the most samples that a bound rests on."""
    alpha: float
    """The probability that a certificate is wrong, at most."""
    pilot: int
    """Samples of the first look, which chooses the class; 0 for no pilot."""
    known_labels: bool = False
    """Whether the class is the input's label instead of the pilot's choice."""
    radii: tuple[float, ...] | None = None
    """The radii that the plan decides; None for a plan that measures the radius."""

    @abstractmethod
    def request(self, state: State, noise: Noise) -> Any:
        """How many more samples each state gets; 0 when it has enough.

        Args:
            state: Where the inputs stand; `state.look` is at least 1.
            noise: The smoothing noise.
        """

    @abstractmethod
    def lower_bound(self, state: State, noise: Noise) -> Any:
        """The lower bound on the probability of the class that this look proves, 0 for none.

        With probability 1 - alpha, none of the bounds of all looks together may exceed the true probability.

        Args:
            state: Where the inputs stand.
            noise: The smoothing noise.
        """

    @abstractmethod
    def __str__(self) -> str:
        """The plan in a few words, as in "input-specific 100,000, decline 0.05"."""

    @property
    def most_looks(self) -> int | None:
        """The largest number of looks, pilot included; None if there is no limit."""
        return None

    @property
    def smallest_request(self) -> int:
        """The fewest samples of a request: the sampler opens enough inputs to fill batches with such requests."""
        return self.pilot or self.samples

    @property
    def usual_samples(self) -> float:
        """About how many samples an input takes, to judge in advance how long a run will be."""
        return self.samples

    @property
    def pilot_counts(self) -> bool:
        """Whether the votes of the pilot count for the bound."""
        return False

    @property
    def pilot_chooses(self) -> bool:
        """Whether the votes of a pilot choose the class."""
        return self.pilot > 0 and not self.known_labels

    @property
    def uses_rivals(self) -> bool:
        """Whether the plan also bounds other classes (`upper_bound`)."""
        return False

    @property
    def primary(self) -> Plan:
        """The plan whose certificates these are: itself, unless it combines several."""
        return self

    @property
    def most_samples(self) -> int:
        """What one input costs at most, every forward pass counted."""
        return self.samples + (0 if self.pilot_counts else self.pilot)

    @property
    def basis(self) -> tuple[Any, ...] | None:
        """Radii of two plans with equal bases count from the same sample on, so they can be compared one by one.

        None for a plan whose radii cannot be compared like that.
        """
        return None

    @property
    def caveat(self) -> str | None:
        """A sentence about what the plan does not guarantee, None if it keeps its promise."""
        return None

    @property
    def explanation(self) -> str:
        """The plan in full sentences for a report: what it does, what it is good for, and what it guarantees."""
        amount = "up to " if self.adaptive else ""
        sentences = [f'The plan "{self}" spends {amount}{self.most_samples:,} samples on each input.']
        if self.radii is not None:
            sentences.append(f"It decides whether the radius is above {listed(self.radii)}.")
        return " ".join([*sentences, self._choice_in_words(), self._guarantee_in_words()])

    def _choice_in_words(self) -> str:
        """How the class is chosen, for `explanation`."""
        use = "count for the bound as well" if self.pilot_counts else "do not count for the bound"
        if not self.known_labels:
            first = f"The first {self.pilot:,} samples choose the class and {use}."
            return first if self.pilot else "The class is the one with most votes."
        pilot = f" The first {self.pilot:,} samples are a pilot and {use}." if self.pilot else " Every sample counts."
        return (
            f'The class is the label of the input.{pilot} An input without a certificate is "not certified": nobody '
            "knows whether the answer for it is wrong."
        )

    def _guarantee_in_words(self) -> str:
        """What is guaranteed, for `explanation`."""
        if self.caveat:
            return f"The plan does not keep its promise in every case. {self.caveat[0].upper()}{self.caveat[1:]}."
        return f"Each certificate is wrong with a probability of at most {self.alpha:g}."

    def for_noise(self, noise: Noise) -> Self:
        """This plan for one noise. A plan that does not depend on the noise returns itself.

        Args:
            noise: The smoothing noise.

        Raises:
            InvalidInput: The noise has to be enumerated, and the plan samples.
        """
        if noise.outcomes is not None:
            raise InvalidInput(
                f"{noise} is not random: use the plan Exact(), which counts its {noise.outcomes} outcomes"
            )
        return self

    def check(self, noise: Noise) -> None:
        """Raise if this plan can never certify anything under this noise.

        Args:
            noise: The smoothing noise.
        """

    def upper_bound(self, state: State, noise: Noise) -> Any:
        """An upper bound on the probability of every other class, for plans with `uses_rivals`.

        Args:
            state: Where the inputs stand, with `rivals`.
            noise: The smoothing noise.
        """
        raise NotImplementedError

    def certified_radius(self, lower: ArrayLike, upper: ArrayLike | None, noise: Noise) -> Any:
        """The radii that proved bounds give; NaN where they give no certificate. A radius of 0 is a certificate.

        Args:
            lower: Lower bounds on the probability of the class.
            upper: Upper bounds on the probability of every other class, where the plan has them.
            noise: The smoothing noise.
        """
        radius = np.asarray(noise.certified_radius(lower, upper))
        return np.where(radius > 0, radius, np.nan)[()]

    def outlook(self, p: ArrayLike, noise: Noise) -> Outlook | None:
        """What the plan does with inputs whose class has probability p; None lets `map` compute it from the states.

        Args:
            p: Probabilities of the class.
            noise: The smoothing noise.
        """
        return None

    def boundaries(self, noise: Noise) -> Boundaries | None:
        """How many votes prove something at each look; None for a plan that does not look again and again.

        Args:
            noise: The smoothing noise.
        """
        return None

    def worst_failure(self, noise: Noise) -> tuple[float, float] | None:
        """The largest probability of a wrong certificate for a class fixed in advance, and the p where it occurs.

        None lets `coverage` compute it from the states.

        Args:
            noise: The smoothing noise.
        """
        return None

    @property
    def failure_is_bound(self) -> bool:
        """Whether `worst_failure` and `tie_failure` are upper bounds that a theorem gives, not exact values."""
        return False

    def tie_failure(self, noise: Noise) -> float | None:
        """The probability of a wrong certificate for two tied classes; None lets `coverage` compute it.

        Args:
            noise: The smoothing noise.
        """
        return None

    def p_value(self, looks: Sequence[Look], p: float, noise: Noise, label: int | None = None) -> float | None:
        """The probability of votes at least as convincing as these if the class has probability p.

        A proof of `lower` holds if this is at most alpha at p = lower. It is computed by another route than
        `lower_bound`, so that `audit` checks one against the other. None if a plan has no second route.

        Args:
            looks: All votes of one input.
            p: The probability of the class.
            noise: The smoothing noise.
            label: The label of the input, where it is known.
        """
        return None

    def more(self, looks: Sequence[Look], noise: Noise, label: int | None = None) -> int:
        """How many more samples one input gets; 0 when it has enough.

        Args:
            looks: All votes so far.
            noise: The smoothing noise.
            label: The label of the input, where it is known.
        """
        return self.follow(looks, noise, label).more

    def prove(self, looks: Sequence[Look], noise: Noise, label: int | None = None) -> Proof:
        """What these votes prove.

        Args:
            looks: All votes of one input.
            noise: The smoothing noise.
            label: The label of the input, where it is known.
        """
        return self.follow(looks, noise, label).proof()

    def follow(self, looks: Sequence[Look], noise: Noise, label: int | None = None) -> Case:
        """One input's way through the plan so far; `Case.add` continues it.

        Args:
            looks: All votes so far.
            noise: The smoothing noise.
            label: The label of the input, where it is known.
        """
        case = Case(self, noise, label)
        for look in looks:
            case.add(look)
        return case

    def path(self, looks: Sequence[Look], noise: Noise, label: int | None = None) -> Path:
        """The votes of one input at each look that counts, to be drawn beside `boundaries`.

        Args:
            looks: All votes of one input.
            noise: The smoothing noise.
            label: The label of the input, where it is known.
        """
        case = self.follow((), noise, label)
        points = []
        for look in looks:
            case.add(look)
            proof = case.proof()
            if proof.counted:
                points.append((proof.counted, proof.count))
        return Path(*np.array(points, np.int64).reshape(-1, 2).T)

    def proof(self, prediction: int | None, state: State, noise: Noise) -> Proof:
        """The proof for one input in its last state.

        Args:
            prediction: Its class.
            state: Plain numbers; `lower` includes the last look.
            noise: The smoothing noise.
        """
        upper = _bound(self, "upper_bound", state, noise) if self.uses_rivals and state.drawn else None
        return Proof(prediction, float(state.lower), upper, int(state.count), int(state.drawn))


def check_choice(plan: Plan) -> None:
    """Refuse a plan whose class would be chosen by the very votes that count for it."""
    if not (plan.pilot or plan.known_labels or plan.enumerates):
        raise InvalidInput(
            f'"{plan}" has no pilot, so the votes that choose the class would count for it, and certificates could be '
            "wrong more often than alpha says: give it a pilot, or known_labels=True"
        )


def listed(values: Sequence[float]) -> str:
    """Numbers in a sentence.

    >>> listed([0, 0.25, 0.5])
    '0, 0.25 or 0.5'
    """
    *most, last = (f"{value:g}" for value in values)
    return f"{', '.join(most)} or {last}" if most else last


def _bound(plan: Plan, method: str, state: State, noise: Noise) -> float:
    """A bound on a probability, after a check, because the plan may be the user's own."""
    bound = getattr(plan, method)(state, noise)
    with suppress(TypeError, ValueError):
        if 0 <= float(bound) <= 1:
            return float(bound)
    raise InvalidInput(f"{type(plan).__name__}.{method} must return a number between 0 and 1, got {bound}")


class Case:
    """One input on its way through a plan: told look after look, it knows how many more samples are wanted.

    Args:
        plan: The plan.
        noise: The smoothing noise.
        label: The label of the input, where it is known.
    """

    @naming_users_code()
    def __init__(self, plan: Plan, noise: Noise, label: int | None) -> None:
        check_choice(plan)
        self.plan = plan
        self.noise = noise
        self.prediction = None
        if plan.known_labels:
            if label is None:
                raise InvalidInput("known_labels needs the label of every input, and this one has none")
            self.prediction = label
        self.state = State(0, 0, 0)
        self.more: int = plan.pilot or self._request()
        """Samples that are wanted next."""
        self._rivals: list[int] = []

    @naming_users_code()
    def add(self, look: Look) -> int:
        """Take the votes of the next look; returns how many more samples are wanted.

        Args:
            look: The votes of the samples that were wanted.
        """
        plan, before = self.plan, self.state
        if plan.most_looks is not None and before.look >= plan.most_looks:
            return self.more  # nobody asked for these votes, and a bound on them would spend alpha again
        if self.prediction is None and before.look == 0:
            self.prediction = look.top
        if before.look == 0 and plan.uses_rivals:
            others = [c for c, count in look.votes.items() if count and c != self.prediction]
            self._rivals = sorted(others, key=lambda c: (-look.votes[c], c))[:RIVALS]
        if before.look == 1 and plan.pilot and not plan.pilot_counts:
            before = replace(before, count=0, drawn=0, rivals=None)
        votes = 0 if self.prediction is None else look.votes.get(self.prediction, 0)
        rivals = None
        if plan.uses_rivals:
            alone = [look.votes.get(c, 0) for c in self._rivals] + [0] * (RIVALS - len(self._rivals))
            pooled = sum(look.votes.values()) - votes - sum(alone)
            rivals = np.array([*alone, pooled]) + (0 if before.rivals is None else before.rivals)
        state = State(before.look + 1, before.count + votes, before.drawn + look.samples, before.lower, rivals)
        if self._counts(state):
            state = replace(state, lower=max(before.lower, _bound(plan, "lower_bound", state, self.noise)))
        self.state = state
        self.more = 0 if self.prediction is None else self._request()
        return self.more

    @naming_users_code()
    def proof(self) -> Proof:
        """What the votes so far prove."""
        state = self.state
        if not self._counts(state):
            state = replace(state, count=0, drawn=0, rivals=None)
        return self.plan.proof(self.prediction, state, self.noise)

    def _request(self) -> int:
        """How many more samples the plan wants, after a check, because the plan may be the user's own."""
        more = self.plan.request(self.state, self.noise)
        with suppress(TypeError, ValueError, OverflowError):
            if (whole := int(more)) == more and whole >= 0:
                return whole
        name = type(self.plan).__name__
        raise InvalidInput(f"{name}.request must return a whole number of samples, at least 0, got {more}")

    def _counts(self, state: State) -> bool:
        only_pilot = state.look <= 1 and self.plan.pilot > 0
        return self.prediction is not None and not (only_pilot and not self.plan.pilot_counts)
