"""The machine that follows a rule: for one input (`Case`) and for many at once (`follow`).

- A request is a whole number of samples. All requests together stay within `most_samples`, and a
  rule ends.
- Votes that nobody asked for prove nothing.
- An input that has enough keeps its state while others go on.

Both differ only in where votes come from. Methods are called through the class of the rule, so that
an attribute of an instance does not hide them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from math import isnan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothcert._user_errors import naming_user_errors
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.noises.base import Numbers, Shape
from smoothcert.plans.base import Plan, Proof, Rule
from smoothcert.plans.votes import Cell, Look, ManyVotes
from smoothcert.statistics.bounds import Counts

_MOST_WHOLE = 2**62
"""Requests are smaller."""


class Case:
    """One input on its way through a rule: told look after look, it knows how many more samples are
    wanted.

    Args:
        plan: The rule or plan.
        noise: The smoothing noise.
        label: The label of the input, where it is known.
        looks: Votes that it is told at once.

    >>> from smoothcert import Fixed, Gaussian
    >>> case = Case(Fixed(10_000), Gaussian(0.5))
    >>> case.more, case.add(Look(100, {3: 90, 5: 10}))
    (100, 10000)
    """

    @naming_user_errors()
    def __init__(
        self, plan: Rule, noise: Noise, label: int | None = None, looks: Iterable[Look] = ()
    ) -> None:
        if plan.known_labels and label is None:
            raise InvalidInput(
                "label-missing",
                "known_labels needs the label of every input, and this one has none",
            )
        self.plan = plan
        self.noise = noise
        self.label = label
        self.looks = 0
        """Looks so far."""
        self.spent = 0
        """Samples so far."""
        self.state = type(plan).init(plan, noise, label if plan.known_labels else None)
        self.more = _first_request(plan, self.state)
        """Samples that are wanted next."""
        for look in looks:
            self.add(look)

    def add(self, look: Look) -> int:
        """Take the votes of the next look; returns how many more samples are wanted.

        Args:
            look: The votes of the samples that were wanted.
        """
        for _ in add_each([self], [look]):
            pass
        return self.more

    @property
    def cell(self) -> Cell:
        """Under a transformation, the cell whose central picture the next samples are of."""
        return type(self.plan).view(self.plan, self.state)

    @naming_user_errors()
    def proof(self) -> Proof:
        """What the votes so far prove."""
        if isinstance(self.plan, Plan):
            return _of_one_input(proved(self.plan, self.state))
        return Proof(type(self.plan).answer(self.plan, self.state))


def add_each(cases: Sequence[Case], looks: Sequence[Look]) -> Iterator[Case]:
    """Add a look to each case of one rule, which may treat many at once, and yield the cases.

    Nothing happens until the result is consumed. A look that a case does not want is ignored, and
    the case is not yielded.
    """
    wanted = [
        (case, look)
        for case, look in zip(cases, looks, strict=True)
        if look.samples == case.more > 0
    ]
    if not wanted:
        return
    plan = cases[0].plan
    states = [case.state for case, _ in wanted]
    with naming_user_errors():
        updated = type(plan).update_each(plan, states, [look for _, look in wanted])
        for (case, look), state in zip(wanted, updated, strict=True):
            case.state = state
            case.looks += 1
            case.spent += look.samples
            more = whole_samples(plan, type(plan).request(plan, state))
            check_within_limits(plan, more, case.spent, case.looks)
            case.more = more
            yield case


def unanimous(plan: Rule, noise: Noise) -> Case:
    """An input of class 0 whose votes are all for it: nobody needs fewer samples, and nobody proves
    more.
    """
    case = Case(plan, noise, label=0)
    while case.more:
        case.add(Look(case.more, {0: case.more}))
    return case


class Followed(NamedTuple):
    """Where many inputs ended."""

    state: Any
    """The state that their rule keeps."""
    samples: Counts
    """Samples of each input, every forward pass counted."""


@naming_user_errors()
def follow(
    plan: Rule,
    noise: Noise,
    draw: Callable[[Counts], ManyVotes],
    shape: Shape,
    chosen: Numbers = None,
) -> Followed:
    """Follow a rule on many inputs to the end.

    Args:
        plan: The rule or plan.
        noise: The smoothing noise.
        draw: Gives the votes for so many samples of each input.
        shape: That of the inputs.
        chosen: The class of each input, if it is fixed in advance.
    """
    kind = type(plan)
    state = kind.init(plan, noise, chosen)
    more = np.full(shape, _first_request(plan, state))
    spent = np.zeros(shape, np.int64)
    looks = 0
    while np.any(more):
        state = told(plan, state, draw(more))
        spent += more
        looks += 1
        more = whole_samples(plan, kind.request(plan, state), taking_part=more > 0)
        check_within_limits(plan, more, spent, looks)
    return Followed(state, spent)


def told(plan: Rule, state: Any, votes: ManyVotes) -> Numbers:
    """The state of many inputs after one more look, whoever asked for it.

    An input without samples in this look keeps its state.
    """
    return _of_those(votes.samples > 0, type(plan).update(plan, state, votes), state)


def whole_samples(plan: Rule, answer: Any, taking_part: Numbers = None) -> Numbers:
    """The answer of `request`, after a check, because the rule may be the user's own.

    `taking_part` are the inputs that wanted samples before; the others get none. None stands for
    one input.
    """
    if taking_part is None and type(answer) is int and 0 <= answer < _MOST_WHOLE:
        return answer
    with suppress(TypeError, ValueError):
        numbers = np.asarray(answer, float)
        if taking_part is not None:
            numbers = np.where(taking_part, numbers, 0.0)
        if np.all((numbers >= 0) & (numbers < _MOST_WHOLE) & (numbers == np.floor(numbers))):
            return int(numbers) if taking_part is None else numbers.astype(np.int64)
    raise InvalidInput(
        "request-not-whole",
        "{plan}.request must return a whole number of samples, at least 0, got {value}",
        plan=type(plan).__name__,
        value=answer,
    )


def _first_request(plan: Rule, state: Any) -> int:
    first = whole_samples(plan, type(plan).request(plan, state))
    if not first:
        raise InvalidInput(
            "no-first-look",
            "{plan}.request asks for 0 samples at the first look: an input needs some",
            plan=type(plan).__name__,
        )
    check_within_limits(plan, first, 0, 0)
    return int(first)


def check_within_limits(plan: Rule, more: Numbers, spent: Numbers, looks: int) -> None:
    """Refuse a rule that would never end, or that asks for more than an input may cost."""
    total = int(np.max(np.where(more, more + spent, 0), initial=0))
    if total and looks >= plan.most_looks:
        raise InvalidInput(
            "too-many-looks",
            '"{plan}" takes more than {most:,} looks',
            plan=plan,
            most=plan.most_looks,
        )
    if total > plan.most_samples:
        raise InvalidInput(
            "too-many-samples",
            "{plan}.request asks for {samples:,} samples of an input, but the plan has at most "
            "{most:,}",
            plan=type(plan).__name__,
            samples=total,
            most=plan.most_samples,
        )


def _of_those(taking_part: NDArray[np.bool_], new: Any, old: Any) -> Any:
    """The new state of the inputs that took part in a look, the old one of those that had enough
    before.
    """
    if new is old or old is None or np.all(taking_part):
        return new
    if isinstance(new, tuple):
        parts = [_of_those(taking_part, *pair) for pair in zip(new, old, strict=True)]
        return type(new)(*parts) if hasattr(new, "_fields") else tuple(parts)
    if not isinstance(new, np.ndarray):
        return new  # one value for all inputs
    more_axes = (1,) * (new.ndim - taking_part.ndim)
    return np.where(taking_part.reshape(taking_part.shape + more_axes), new, old)


def proved(plan: Plan, state: Any) -> Proof:
    """What a plan proves, after a check, because it may be the user's own."""
    proof = type(plan).prove(plan, state)
    if not isinstance(proof, Proof):
        raise InvalidInput(
            "not-a-proof",
            "{plan}.prove must return a Proof, got {kind}",
            plan=type(plan).__name__,
            kind=type(proof).__name__,
        )
    lower = np.asarray(proof.lower, float)
    if not np.all((lower >= 0) & (lower <= 1)):
        raise InvalidInput(
            "bound-not-a-probability",
            "{plan}.prove must return a lower bound between 0 and 1, got {value}",
            plan=type(plan).__name__,
            value=proof.lower,
        )
    if np.any(np.asarray(proof.radius, float) < 0):
        raise InvalidInput(
            "negative-radius",
            "{plan}.prove must return a radius of at least 0, got {value}",
            plan=type(plan).__name__,
            value=proof.radius,
        )
    return proof


def _of_one_input(proof: Proof) -> Proof:
    """The proof as plain numbers."""
    radius = upper = None
    if proof.prediction is not None and proof.radius is not None and not isnan(proof.radius):
        radius = float(proof.radius)
    if proof.upper is not None and proof.counted:
        upper = float(proof.upper)
    return Proof(
        proof.prediction, radius, float(proof.lower), upper, int(proof.count), int(proof.counted)
    )
