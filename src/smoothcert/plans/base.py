"""What a plan is: a rule for how many samples an input gets, and a proof of what its votes show.

Votes and states go into a plan, and proofs come out of it.

A plan is defined once, on arrays of states: `request` says how many more samples each state gets, `lower_bound` which
bound on the probability of the class it proves. `machine` follows it, for one input, for a replay of 10,000, and for
the exact failure probability. What describes, draws or verifies a plan stands beside it: `outlook`,
`second_route`, `coverage`. These functions have implementations for some kinds of plans (`ByRule`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import getattr_static
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert import _check
from smoothcert._registry import Recorded
from smoothcert.errors import InvalidInput, either
from smoothcert.noises import Noise

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])

_NO_PART_OF_A_RULE = {
    "for_noise",
    "smallest_request",
}  # called before the first look; fills batches
RIVALS = 3
"""Classes beside the predicted one that get an upper bound of their own; all others share one."""


@dataclass(frozen=True)
class Look:
    """The votes of one request.

    Args:
        samples: Forward passes of this request.
        votes: Votes by class. A sample without a vote had an output that was not finite.
    """

    samples: int
    votes: Mapping[int, int]

    def __post_init__(self) -> None:
        cast = sum(_check.whole(f"votes for class {c}", count) for c, count in self.votes.items())
        if cast > _check.whole("samples", self.samples):
            raise InvalidInput(
                f"votes must be counts that sum to at most samples ({self.samples}), got {cast}"
            )

    @property
    def top(self) -> int | None:
        """The class with most votes, the smallest one in a tie; None if there are no votes."""
        return (
            min(self.votes, key=lambda c: (-self.votes[c], c), default=None)
            if any(self.votes.values())
            else None
        )

    @property
    def missing(self) -> int:
        """Samples whose output was not finite: they count for no class."""
        return self.samples - sum(self.votes.values())

    def of(self, chosen: int | None) -> int:
        """Votes for a class.

        Args:
            chosen: The class; None for no class.
        """
        return 0 if chosen is None else self.votes.get(chosen, 0)

    def __add__(self, other: Look) -> Look:
        """The votes of both looks together."""
        return Look(self.samples + other.samples, dict(Counter(self.votes) + Counter(other.votes)))

    def strongest_beside(self, chosen: int | None) -> tuple[int, ...]:
        """The other classes with most votes, `RIVALS` of them at most.

        Args:
            chosen: The class that they are rivals of.
        """
        others = [c for c, count in self.votes.items() if count and c != chosen]
        return tuple(sorted(others, key=lambda c: (-self.votes[c], c))[:RIVALS])

    def in_groups(self, chosen: int | None, rivals: tuple[int, ...]) -> NDArray[np.int64]:
        """Votes for each rival, and for all other classes together.

        Args:
            chosen: The class that they are rivals of.
            rivals: Rivals that are counted one by one.
        """
        alone = [self.votes.get(c, 0) for c in rivals] + [0] * (RIVALS - len(rivals))
        return np.array([*alone, sum(self.votes.values()) - self.of(chosen) - sum(alone)])


@dataclass(frozen=True)
class ManyVotes:
    """The votes of one look at many inputs, as a simulation draws them; the same questions as to a `Look`.

    Args:
        samples: Samples of each input; 0 for an input that has enough.
        votes: Votes by class, shape (..., classes).
    """

    samples: NDArray[np.int64]
    votes: NDArray[np.int64]

    @property
    def top(self) -> NDArray[np.int64]:
        return np.asarray(self.votes.argmax(axis=-1))

    def of(self, chosen: Any) -> Any:
        return np.take_along_axis(self.votes, chosen[..., None], axis=-1)[..., 0]

    def strongest_beside(self, chosen: Any) -> Any:
        masked = np.where(np.arange(self.votes.shape[-1]) == chosen[..., None], -1, self.votes)
        return np.argsort(-masked, axis=-1, kind="stable")[..., : min(RIVALS, masked.shape[-1] - 1)]

    def in_groups(self, chosen: Any, rivals: Any) -> Any:
        alone = np.take_along_axis(self.votes, rivals, axis=-1)
        pooled = (self.votes.sum(axis=-1) - self.of(chosen) - alone.sum(axis=-1))[..., None]
        missing = np.zeros((*alone.shape[:-1], RIVALS - alone.shape[-1]), np.int64)
        return np.concatenate([alone, missing, pooled], axis=-1)


@dataclass(frozen=True)
class ClassVotes:
    """The votes of one look for the class alone, where nothing is known about other classes.

    Args:
        samples: Samples of each input; 0 for an input that has enough.
        count: Votes for the class among them.
    """

    samples: Any
    count: Any

    def of(self, chosen: Any) -> Any:
        return self.count


Votes = Look | ManyVotes | ClassVotes
"""The votes of one look: by class in a dictionary for one input, in arrays for many, or for the class alone."""


class State(NamedTuple):
    """Where inputs stand: arrays of one shape, or plain numbers for one input.

    Args:
        look: How many looks were taken so far; one number for all inputs.
        count: Votes for the class among the `drawn` samples.
        drawn: Samples that count. Right after a pilot that does not count, these are the pilot's samples: a plan may
            use them to decide what to draw, and they are dropped with the next look.
        lower: The largest lower bound that an earlier look proved, 0 for none.
        rivals: Votes for groups of other classes, shape (..., RIVALS + 1); None unless the plan asks for them.
        memory: What `Plan.remember` returned at the last look; None before the first.
        chosen: The class; None until it is chosen.
        strongest: The classes behind all but the last of the `rivals`.
        more: Samples that are wanted next; 0 for an input that has enough.
    """

    look: Any
    count: Any
    drawn: Any
    lower: Any = 0.0
    rivals: Any = None
    memory: Any = None
    chosen: Any = None
    strongest: Any = None
    more: Any = 0


@dataclass(frozen=True)
class Proof:
    """What votes prove about one input.

    Args:
        prediction: The class that the proof is about; None if no class was chosen.
        lower: The probability of the class is at least this. 0 proves nothing.
        upper: The probability of every other class is at most this; None where only `lower` is known.
        count: Votes for the class among the `counted` samples that the bound rests on.
        counted: Samples that the bound rests on.
        radius: The radius that is proved without bounds on probabilities; None where only these tell it.
    """

    prediction: int | None
    lower: float
    upper: float | None = None
    count: int = 0
    counted: int = 0
    radius: float | None = None


class Plan(Recorded, ABC):
    """Base of all plans. A subclass is a frozen dataclass with `request` and `lower_bound`.

    The first look is the pilot. It chooses the class, unless the label is known. Its votes count for the proof only if
    `pilot_counts`; a plan without a pilot needs known labels.
    """

    name: ClassVar[str]
    """What it is called on the command line and in tables."""

    samples: int
    """The ceiling: the most samples that a bound rests on."""
    alpha: float
    """The largest probability that a certificate is wrong."""
    pilot: int
    """Samples of the first look, which chooses the class; 0 for no pilot."""
    known_labels: bool = False
    """Whether the class is the input's label instead of the pilot's choice."""
    radii: tuple[float, ...] | None = None
    """The radii that the plan decides; None for a plan that measures the radius."""
    bound: str = "binary"
    """Whether proofs rest on the votes of the class alone ("binary") or also on those of others ("runner-up")."""
    pilot_counts: bool = False
    """Whether the votes of the pilot count for the bound."""
    uses_rivals: bool = False
    """Whether the plan also bounds other classes (`upper_bound`)."""

    @abstractmethod
    def request(self, state: State, noise: Noise) -> Any:
        """How many more samples each state gets; 0 when it has enough.

        Args:
            state: Where the inputs stand; `state.look` is at least 1, or 0 for a plan without a pilot.
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

    def remember(self, state: State, votes: Votes, noise: Noise) -> Any:
        """What the plan keeps beside the counts, from one look to the next: the new `state.memory`.

        It must depend on nothing but the arguments. For many inputs, it is an array or a tuple of arrays whose first
        axes are those of `state.count`.

        Args:
            state: Where the inputs stand after this look, with the memory from before it.
            votes: The votes of this look. `votes.of(state.chosen)` are those for the class; `votes.votes` has all
                classes.
            noise: The smoothing noise.
        """
        return None

    def remember_each(
        self, states: Sequence[State], looks: Sequence[Look], noise: Noise
    ) -> Iterable[Any]:
        """What `remember` returns for each of several inputs. A plan that is faster for many at once overrides this.

        Args:
            states: Where each input stands.
            looks: Its votes.
            noise: The smoothing noise.
        """
        return (
            self.remember(state, look, noise) for state, look in zip(states, looks, strict=True)
        )

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

    def for_noise(self, noise: Noise) -> Self:
        """This plan for one noise. A plan that does not depend on the noise returns itself.

        Args:
            noise: The smoothing noise.

        Raises:
            InvalidInput: The plan can never certify anything under this noise.
        """
        if noise.outcomes is not None:
            raise InvalidInput(
                f"{noise} is not random: use {either('the plan Exact()', '--method exact')}, which counts its "
                f"{noise.outcomes} outcomes"
            )
        return self

    @property
    def primary(self) -> Plan:
        """The plan behind the certificates: this one or, of a combined plan, its first."""
        return self

    @property
    def earlier_plans(self) -> tuple[Plan, ...]:
        """For a run that was continued: its plans before that, in order."""
        return ()

    @property
    def remembers(self) -> bool:
        """Whether the plan keeps more than counts between looks (`remember`)."""
        return type(self).remember is not Plan.remember

    @property
    def smallest_request(self) -> int:
        """The fewest samples of a request: the sampler opens enough inputs to fill batches with such requests."""
        return self.pilot or self.samples

    @property
    def most_samples(self) -> int:
        """What one input costs at most, every forward pass counted."""
        return self.samples + (0 if self.pilot_counts else self.pilot)


class ByRule(Generic[Result]):
    """A function of a plan with other implementations for some kinds of plans.

    What is registered for a class holds for its subclasses only if they keep its rule. A closed form was derived for
    one rule, and another rule may prove too much.

    Args:
        default: What holds for every plan.
    """

    def __init__(self, default: Callable[..., Result]) -> None:
        self._default = default
        self._known: dict[type, Callable[..., Result]] = {}
        self.__doc__ = default.__doc__

    def register(self, kind: type) -> Callable[[Function], Function]:
        """Decorate the function for one kind of plan."""

        def keep(function: Function) -> Function:
            self._known[kind] = function
            return function

        return keep

    def __call__(self, plan: Plan, *args: Any) -> Result:
        return (self.known_for(plan) or self._default)(plan, *args)

    def known_for(self, plan: Plan) -> Callable[..., Result] | None:
        """What is registered for the rule of a plan."""
        kinds = (kind for kind in type(plan).__mro__ if kind in self._known and follows(plan, kind))
        return self._known.get(next(kinds, object))


def follows(plan: Plan, *kinds: type) -> bool:
    """Whether a plan follows the rule of one of these classes: it is of this class, or of a subclass that keeps it.

    >>> from smoothcert.plans import Fixed, PilotPlan
    >>> follows(Fixed(1_000), PilotPlan)
    True
    """
    return any(isinstance(plan, kind) and _keeps_rule(type(plan), kind) for kind in kinds)


@cache
def _keeps_rule(cls: type, kind: type) -> bool:
    """Whether a subclass overrides no method and no property of a class, except abstract ones.

    Fields, class variables and names such as `__str__` may differ: they do not change the rule.
    """
    own = {
        name for base in cls.__mro__[: cls.__mro__.index(kind)] for name in vars(base)
    } - _NO_PART_OF_A_RULE
    overridden = [getattr_static(kind, name, None) for name in own if not name.startswith("__")]
    rules = [member for member in overridden if callable(member) or hasattr(member, "__get__")]
    return all(getattr(member, "__isabstractmethod__", False) for member in rules)
