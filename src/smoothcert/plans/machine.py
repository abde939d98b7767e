"""The machine that follows a plan. Nothing else knows the rules of doing so.

- The first look is the pilot, if the plan has one. It chooses the class, unless the class is known.
- A pilot that does not count proves nothing. Its votes are dropped with the second look.
- What a look proved stays proved: the lower bound is the largest one of all looks.
- A request is a whole number of samples. All requests together stay within `plan.most_samples`, and a plan ends.
- Votes that nobody asked for prove nothing.

States are arrays of any shape: one input in the engine, (repetitions, inputs) in a simulation, neighbouring counts in
the exact enumeration. These differ only in where votes come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import singledispatch
from typing import Any

import numpy as np

from smoothcert._user_errors import naming_user_errors
from smoothcert.errors import InvalidInput, setting
from smoothcert.noises import Noise
from smoothcert.plans.base import Look, Plan, Proof, State, Votes

MOST_LOOKS = 10_000


def begin(plan: Plan, noise: Noise, shape: tuple[int, ...] = (), chosen: Any = None) -> State:
    """The states before the first look, with what is wanted for it; `chosen` is a class that is fixed in advance."""
    check_choice(plan, noise)
    state = State(0, 0, 0, chosen=chosen)
    first = _in_bounds(plan, state, plan.pilot) or wanted(plan, noise, state)
    if not first:
        raise InvalidInput(
            f"{type(plan).__name__}.request asks for 0 samples, but the plan has no pilot"
        )
    if not shape:
        return state._replace(more=first)
    zeros = np.zeros(shape, np.int64)
    return state._replace(
        count=zeros, drawn=zeros, lower=np.zeros(shape), more=np.full(shape, first)
    )


def accumulate(plan: Plan, noise: Noise, state: State, votes: Any) -> State:
    """Add the `Votes` of a look."""
    added = _counted(plan, state, votes)
    if not plan.remembers:
        return added
    return added._replace(
        memory=_of_those(state.more, plan.remember(added, votes, noise), state.memory)
    )


def _counted(plan: Plan, state: State, votes: Any) -> State:
    look, chosen, strongest = state.look + 1, state.chosen, state.strongest
    count, drawn, rivals = (
        (state.count, state.drawn, state.rivals) if counts(plan, state.look) else (0, 0, None)
    )
    if look == 1:
        chosen = votes.top if chosen is None else chosen
        strongest = votes.strongest_beside(chosen) if plan.uses_rivals else None
    if plan.uses_rivals:
        groups = votes.in_groups(chosen, strongest)
        rivals = groups if rivals is None else rivals + groups
    count, drawn = count + votes.of(chosen), drawn + votes.samples
    return state._replace(
        look=look, count=count, drawn=drawn, rivals=rivals, chosen=chosen, strongest=strongest
    )


def conclude(plan: Plan, noise: Noise, state: State) -> State:
    """What is proved after a look, and how many more samples are wanted."""
    if (
        state.chosen is None and state.memory is None
    ):  # the plans in a memory choose classes of their own
        return state._replace(more=0)
    state = state._replace(
        lower=np.maximum(state.lower, bound(plan, noise, state))
    )  # what was proved stays proved
    return state._replace(more=wanted(plan, noise, state))


def bound(plan: Plan, noise: Noise, state: State) -> Any:
    """The lower bound that this look proves, 0 for none."""
    return (
        _checked(plan, "lower_bound", state, noise, state.more) if counts(plan, state.look) else 0.0
    )


def wanted(plan: Plan, noise: Noise, state: State) -> Any:
    """How many more samples are wanted; 0 for inputs that wanted none before."""
    return _in_bounds(plan, state, _checked(plan, "request", state, noise, state.more))


def upper(plan: Plan, noise: Noise, state: State) -> Any:
    """The upper bound on every other class, 1 where no sample counts; None for a plan without one."""
    if not plan.uses_rivals:
        return None
    if state.rivals is None:
        return np.ones(np.shape(state.drawn))[()]
    return np.where(state.drawn, _checked(plan, "upper_bound", state, noise, state.drawn), 1.0)[()]


def settled(plan: Plan, state: State) -> State:
    """The state without votes that do not count."""
    if counts(plan, state.look) and state.chosen is not None:
        return state
    return state._replace(count=0 * state.count, drawn=0 * state.drawn, rivals=None)


def counts(plan: Plan, look: int) -> bool:
    """Whether the votes up to a look count for the proof."""
    return look > 1 or not plan.pilot or plan.pilot_counts


def spent(plan: Plan, state: State) -> Any:
    """All samples of each input so far, every forward pass counted."""
    return state.drawn + (plan.pilot if state.look > 1 and not counts(plan, 1) else 0)


def follow(
    plan: Plan,
    noise: Noise,
    draw: Callable[[State], Votes],
    shape: tuple[int, ...],
    chosen: Any = None,
) -> State:
    """Follow a plan on many inputs to the end; `draw` gives the votes for the samples that a state wants."""
    conclude_all = _conclude_once_per_state if reads_only_counts(plan) else conclude
    with naming_user_errors():
        state = begin(plan, noise, shape, chosen)
        while np.any(state.more):
            state = conclude_all(plan, noise, accumulate(plan, noise, state, draw(state)))
        return state


def reads_only_counts(plan: Plan) -> bool:
    """Whether the rule of a plan knows nothing but the votes for the class, the samples and what was proved."""
    return not plan.remembers and not plan.uses_rivals


def _conclude_once_per_state(plan: Plan, noise: Noise, state: State) -> State:
    """`conclude`, where the rule is asked once for all inputs that are in the same state."""
    going = state.more > 0
    count, drawn = state.count[going], state.drawn[going]
    lowers, level = np.unique(state.lower[going], return_inverse=True)
    key = (level * (drawn.max() + 1) + drawn) * (count.max() + 1) + count
    _, first, where = np.unique(key, return_index=True, return_inverse=True)
    few = State(
        state.look,
        count[first],
        drawn[first],
        lowers[level[first]],
        chosen=0,
        more=np.ones_like(first),
    )
    few = conclude(plan, noise, few)
    lower, more = state.lower.copy(), state.more.copy()
    lower[going], more[going] = few.lower[where], few.more[where]
    return state._replace(lower=lower, more=more)


def check_choice(plan: Plan, noise: Noise) -> None:
    """Refuse a plan whose class would be chosen by the very votes that count for it."""
    if not (plan.pilot or plan.known_labels or noise.outcomes):
        raise InvalidInput(
            f'"{plan}" has no pilot, so the votes that choose the class would count for it, and certificates could be '
            f"wrong more often than alpha says: give it a pilot, or {setting('known_labels', True)}"
        )


class Case:
    """One input on its way through a plan: told look after look, it knows how many more samples are wanted.

    Args:
        plan: The plan.
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
        self, plan: Plan, noise: Noise, label: int | None = None, looks: Iterable[Look] = ()
    ) -> None:
        if plan.known_labels and label is None:
            raise InvalidInput("known_labels needs the label of every input, and this one has none")
        self.plan = plan
        self.noise = noise
        self.label = label
        self.state = begin(plan, noise, chosen=label if plan.known_labels else None)
        for look in looks:
            self.add(look)

    @property
    def more(self) -> int:
        """Samples that are wanted next."""
        more: int = self.state.more
        return more

    def add(self, look: Look) -> int:
        """Take the votes of the next look; returns how many more samples are wanted.

        Args:
            look: The votes of the samples that were wanted.
        """
        for _ in add_each([self], [look]):
            pass
        return self.more

    @naming_user_errors()
    def proof(self) -> Proof:
        """What the votes so far prove."""
        return proof(self.plan, self.noise, self.state)


def unanimous(plan: Plan, noise: Noise) -> Case:
    """An input of class 0 whose votes are all for it: nobody needs fewer samples, and nobody proves more."""
    case = Case(plan, noise, label=0)
    while case.more:
        case.add(Look(case.more, {0: case.more}))
    return case


def add_each(cases: Sequence[Case], looks: Sequence[Look]) -> Iterator[Case]:
    """Tell each case of one plan its next look, and give it back. A plan may treat many of them at once.

    A look that is not the wanted one is ignored.
    """
    wanted = [
        (case, look)
        for case, look in zip(cases, looks, strict=True)
        if look.samples == case.more > 0
    ]
    if wanted:
        plan, noise = cases[0].plan, cases[0].noise
        with naming_user_errors():
            states = [_counted(plan, case.state, look) for case, look in wanted]
            memories = plan.remember_each(states, [look for _, look in wanted], noise)
            for (case, _), state, memory in zip(wanted, states, memories, strict=True):
                case.state = conclude(plan, noise, state._replace(memory=memory))
                yield case


@singledispatch
def proof(plan: Plan, noise: Noise, state: State) -> Proof:
    """What the votes of one input prove."""
    state = settled(plan, state)
    others = upper(plan, noise, state) if state.drawn else None
    return Proof(
        state.chosen,
        float(state.lower),
        None if others is None else float(others),
        int(state.count),
        int(state.drawn),
    )


def _checked(plan: Plan, method: str, state: State, noise: Noise, taking_part: Any) -> Any:
    """What a plan answers for inputs that take part, after a check, because the plan may be the user's own."""
    answer, whole = getattr(plan, method)(state, noise), method == "request"

    def valid(x: Any) -> Any:
        return (x >= 0) & ((x < 2**62) & (x == np.floor(x)) if whole else x <= 1)

    with suppress(TypeError, ValueError):
        if isinstance(state.count, np.ndarray):
            numbers = np.broadcast_to(
                np.where(taking_part, np.asarray(answer, float), 0.0), state.count.shape
            )
            if np.all(valid(numbers)):
                return numbers.astype(np.int64) if whole else numbers
        elif valid(number := float(answer)):
            return int(number) if whole else number
    allowed = "whole number of samples, at least 0" if whole else "number between 0 and 1"
    raise InvalidInput(f"{type(plan).__name__}.{method} must return a {allowed}, got {answer}")


def _in_bounds(plan: Plan, state: State, more: Any) -> Any:
    """Refuse a plan that would never end, or that asks for more than an input may cost."""
    asked = (more > 0) * (more + spent(plan, state))
    asked = asked.max(initial=0) if isinstance(asked, np.ndarray) else asked
    if asked and state.look >= MOST_LOOKS:
        raise InvalidInput(f'"{plan}" takes more than {MOST_LOOKS:,} looks')
    if asked > plan.most_samples:
        raise InvalidInput(
            f"{type(plan).__name__}.request asks for {asked:,} samples of an input, but the plan has at most "
            f"{plan.most_samples:,}"
        )
    return more


def _of_those(taking_part: Any, new: Any, old: Any) -> Any:
    """The new memory of the inputs that took part in a look, the old one of those that had enough before."""
    if not isinstance(taking_part, np.ndarray) or old is None or np.all(taking_part):
        return new
    if isinstance(new, tuple):
        parts = [_of_those(taking_part, *pair) for pair in zip(new, old, strict=True)]
        return type(new)(*parts) if hasattr(new, "_fields") else tuple(parts)
    new = np.asarray(new)
    return np.where(
        taking_part.reshape(taking_part.shape + (1,) * (new.ndim - taking_part.ndim)), new, old
    )
