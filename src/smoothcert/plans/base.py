"""What a rule and a plan are.

A rule says how many samples an input gets. A plan is a rule whose votes prove something. Both are
frozen dataclasses of settings, and keep what they know about inputs in a state of their own, as in
optax:

    state = plan.init(noise)                 # before the first look
    samples = plan.request(state)            # how many more samples; 0 for enough
    state = plan.update(state, votes)        # after a look
    proof = plan.prove(state)                # class, radius, and bounds where it has them

A state is a named tuple: numbers for one input, arrays of one shape for many. The same code serves
one input in the engine, a replay of 10,000, and the exact enumeration (`follow`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from smoothcert._registry import Recorded
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers
from smoothcert.plans.votes import AS_IT_IS, Cell, Look, Tally, Votes

if TYPE_CHECKING:
    from smoothcert.plans.coverage import Coverage
    from smoothcert.plans.expected import Expected


_DERIVED = ("coverage", "p_value", "expected", "expected_samples", "basis", "adaptive", "primary")
"""What was derived for one rule. A subclass does not inherit it, because it may have another
rule."""


@dataclass(frozen=True)
class Proof:
    """What votes prove: numbers for one input, arrays for many.

    Args:
        prediction: The class that the proof is about; None if no class was chosen.
        radius: No change below this radius changes the class. None (in arrays NaN) if no radius is
            proved; a proved radius of 0 says that the class has the most votes.
        lower: The probability of the class is at least this. 0 proves nothing.
        upper: The probability of every other class is at most this; None where only `lower` is
            known.
        count: Votes for the class among the `counted` samples that the proof rests on.
        counted: Samples that the proof rests on.
    """

    prediction: Numbers = None
    radius: Numbers = None
    lower: Numbers = 0.0
    upper: Numbers = None
    count: Numbers = 0
    counted: Numbers = 0

    @classmethod
    def from_bounds(cls, tally: Tally, lower: ArrayLike, upper: ArrayLike | None = None) -> Self:
        """The proof that bounds on probabilities give. A radius of 0 is not a certificate here.

        Args:
            tally: The votes behind the bounds.
            lower: Lower bounds on the probability of the class.
            upper: Upper bounds on the probability of every other class.
        """
        if tally.chosen is None:
            return cls()
        radius = np.asarray(tally.noise.certified_radius(lower, upper))
        radius = np.where(radius > 0, radius, np.nan)[()]
        return cls(tally.chosen, radius, lower, upper, tally.count, tally.drawn)


class Rule(Recorded, ABC):
    """Base of all rules: how many samples an input gets. A subclass is a frozen dataclass."""

    __slots__ = ()

    name: ClassVar[str]
    """What it is called on the command line and in tables."""

    samples: int
    """The ceiling: the most samples that count."""
    pilot: int = 0
    """Samples of the first look, which chooses the class and does not count; 0 for no pilot."""
    known_labels: bool = False
    """Whether the class is the input's label instead of the pilot's choice."""
    top: int = 1
    """What is claimed: that the class stays among so many most probable ones."""
    most_looks: ClassVar[int] = 10_000
    """A rule that wants more looks at an input would hardly end, and is refused."""

    def init(self, noise: Noise, chosen: Numbers = None) -> Any:
        """The state before the first look, a named tuple. By default, it is a `Tally`.

        Args:
            noise: The smoothing noise.
            chosen: The class, if it is fixed in advance: the label, or an array of classes.
        """
        return Tally.begin(self, noise, chosen)

    def update(self, state: Any, votes: Votes) -> Any:
        """The state after a look. It must depend on nothing but the arguments.

        Args:
            state: The state before it.
            votes: The votes of the samples that were requested. In arrays, inputs that have enough
                get 0 samples, and what is returned for them is ignored.
        """
        return state.add(votes)

    @abstractmethod
    def request(self, state: Any) -> Numbers:
        """How many more samples each input gets; 0 when it has enough.

        Args:
            state: Where the inputs stand.
        """

    @abstractmethod
    def __str__(self) -> str:
        """The rule in a few words, as in "input-specific 100,000, decline 0.05"."""

    def view(self, state: Any) -> Cell:
        """Under a transformation, the cell whose central picture the next samples are of.

        Args:
            state: Where one input stands.
        """
        return AS_IT_IS

    def update_each(self, states: Sequence[Any], looks: Sequence[Look]) -> Iterable[Any]:
        """What `update` returns for each of several inputs.

        A rule that is faster for many at once overrides this.

        Args:
            states: The state of each input.
            looks: Its votes.
        """
        return map(self.update, states, looks)

    def answer(self, state: Any) -> Any:
        """The class that a rule answers with, which nothing is proved about; None for no answer.

        Args:
            state: Where one input stands.
        """
        return None

    def for_noise(self, noise: Noise) -> Self:
        """This rule for one noise. A rule that does not depend on the noise returns itself.

        Args:
            noise: The smoothing noise.

        Raises:
            InvalidInput: The rule can never reach its aim under this noise.
        """
        check_random(noise)
        return self

    @property
    def smallest_request(self) -> int:
        """The fewest samples of a request: the sampler opens enough inputs to fill batches with
        such requests.
        """
        return self.pilot or self.samples

    @property
    def most_samples(self) -> int:
        """What one input costs at most, every forward pass counted."""
        return self.samples + self.pilot


class Plan(Rule):
    """Base of all plans: rules whose votes prove something.

    `prove` has to keep a promise: what it says about the final state of an input is wrong with a
    probability of at most `alpha`. Whether it does is derived for one rule, as `coverage` and the
    methods below it. Subclasses do not inherit these: a subclass may override anything, so it has
    to give its own or is simulated and called "not proved". Plans of this package have `__slots__`,
    so that no attribute of an instance hides a method.
    """

    __slots__ = ()

    alpha: float
    """The largest probability that a certificate is wrong."""
    radii: tuple[float, ...] | None = None
    """The radii that the plan decides; None for a plan that measures the radius."""
    bound: str = "binary"
    """Whether proofs rest on the votes of the class alone ("binary") or also on those of others
    ("runner-up")."""
    adaptive: ClassVar[bool] = True
    """Whether inputs get different numbers of samples."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in _DERIVED:
            if name not in vars(cls):
                setattr(cls, name, vars(Plan)[name])

    @abstractmethod
    def prove(self, state: Any) -> Proof:
        """What the votes prove. It is asked when `request` is 0.

        Args:
            state: Where the inputs stand.
        """

    @property
    def primary(self) -> Plan:
        """The plan behind the certificates: this one or, of a combined plan, its first."""
        return self

    @property
    def earlier_plans(self) -> tuple[Plan, ...]:
        """For a run that was continued: its plans before that, in order."""
        return ()

    def continuing(self, recorded: Plan) -> Plan:
        """The plan of a recorded run that goes on with this plan; this plan itself where it cannot
        go on.

        Args:
            recorded: The plan of the run so far.
        """
        return self

    def _claim_in_words(self) -> list[str]:
        """What is claimed, where it is not that the class has a majority of its own."""
        words = []
        if self.top > 1:
            words.append(f"top {self.top}")
        elif self.bound == "runner-up":
            words.append("runner-up bound")
        if self.known_labels:
            words.append("known labels")
        return words

    @property
    def caveat(self) -> str | None:
        """What the plan does not guarantee although its failure is known, in words; None for
        nothing.
        """
        return None

    def coverage(self, noise: Noise) -> Coverage | None:
        """How often certificates are wrong, as a formula or a theorem says; None if nothing is
        known.

        Args:
            noise: The smoothing noise.
        """
        return None

    def p_value(
        self, looks: Sequence[Look], radius: float, noise: Noise, label: int | None = None
    ) -> float | None:
        """An upper bound on the probability of votes as convincing as these if the true radius is
        not above this one.

        It is computed in another way than `prove`. A proof of the radius holds if it is at most
        alpha. None if there is no second way.

        Args:
            looks: All votes of one input.
            radius: The radius.
            noise: The smoothing noise.
            label: The label of the input.
        """
        return None

    def expected(self, p: ArrayLike, noise: Noise) -> Expected | None:
        """What the plan costs and proves for a class of probability p if the pilot were right about
        it; None if only simulations tell. `expected_samples` averages over pilots.

        Args:
            p: Probabilities of the class.
            noise: The smoothing noise.
        """
        return None

    def expected_samples(self, p: Numbers, noise: Noise) -> Numbers:
        """What an input costs on average if its class has probability p (ASN); None if only
        simulations tell.

        Args:
            p: Probabilities of the class.
            noise: The smoothing noise.
        """
        return None

    def basis(self) -> tuple[Any, ...] | None:
        """Radii of two plans with equal bases count from the same sample on, so they can be
        compared one by one.

        None for a plan whose radii cannot be compared like that.
        """
        return None


def has_derived_coverage(plan: Plan) -> bool:
    """Whether the class of a plan derives its own `coverage`, and no instance attribute hides it.

    A subclass does not inherit `coverage`. An attribute of an instance may be a field or a cached
    property. Any other one could hide a part of the rule.
    """
    kind = type(plan)
    if vars(kind).get("coverage", Plan.coverage) is Plan.coverage:
        return False
    return not any(_is_hidden(kind, name) for name in getattr(plan, "__dict__", ()))


def _is_hidden(kind: type, name: str) -> bool:
    """Whether an instance hides an attribute of its class that is no default of a field."""
    value = getattr(kind, name, None)
    is_field = name in getattr(kind, "__dataclass_fields__", ())
    return callable(value) or not (value is None or is_field or isinstance(value, cached_property))


def check_random(noise: Noise) -> None:
    """Refuse a noise that is counted, not sampled."""
    if noise.outcomes is not None:
        raise InvalidInput(
            "not-random",
            "{noise} is not random: use `the plan Exact()|--method exact`, which counts its "
            "{outcomes} outcomes",
            noise=noise,
            outcomes=noise.outcomes,
        )


def check_top(plan: Rule, answers: int) -> None:
    """Refuse a question whose answer is always yes."""
    if plan.top >= answers:
        raise InvalidInput(
            "top-too-large",
            "every class is among the top {top} of {answers}: give a smaller `top`",
            top=plan.top,
            answers=answers,
        )


def settle(config: Any, **values: Any) -> None:
    """Set fields of a frozen dataclass to their checked values."""
    for name, value in values.items():
        object.__setattr__(config, name, value)


@dataclass(frozen=True, slots=True)
class SingleDraw(Rule):
    """Draw once. The answer is the class with most votes.

    Args:
        samples: The samples of each input.
    """

    samples: int
    name: ClassVar[str] = "single-draw"

    def __str__(self) -> str:
        return f"a single draw of {self.samples:,} samples"

    def init(self, noise: Noise, chosen: Numbers = None) -> Tally:
        return Tally(noise, pilot=0, chosen=chosen)

    def request(self, state: Tally) -> int:
        return 0 if state.look else self.samples

    def answer(self, state: Tally) -> Any:
        return state.chosen
