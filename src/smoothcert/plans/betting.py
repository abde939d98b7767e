"""The rule of `AtRadii` with the runner-up: bets against every rival at every radius, until all radii are decided.

Bets change only at looks that do not depend on the ceiling, and their proofs hold wherever sampling stops. So a run can
be continued with a higher ceiling, or with radii above its largest: it gets another stage. Every input goes through all
stages in order. It enters the next one when it has decided the radii of the last one, has given up or has reached its
ceiling. So votes and proofs follow from the plan alone, whenever an input was opened. A radius that enters later starts
with a wealth of 1, and earlier votes only teach its bets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.noises import Noise
from smoothcert.plans.records import Look, ManyVotes, State, Votes
from smoothcert.statistics.bets import LOOKS, Histories, begin_histories, outcome, tangents, update_histories

if TYPE_CHECKING:
    from smoothcert.plans.at_radii import AtRadii

VERSION = 1
"""Of this rule: looks, bets and giving up. Recorded with a run, because the rule has to be followed again."""


class Standing(NamedTuple):
    """Where one input stands after a look."""

    histories: Histories
    total: int
    """Samples so far, with the pilot."""
    stage: int
    proved: int
    """How many radii are proved, counted from the smallest one."""
    more: int
    """Samples up to the next look; 0 if all is decided."""


def remember(plan: AtRadii, state: State, votes: Votes, noise: Noise) -> Any:
    """Where one input stands after a look, or an array of them for many inputs."""
    if isinstance(votes, Look):
        return remember_each(plan, [state], [votes], noise)[0]
    assert isinstance(votes, ManyVotes)
    memory = np.full(state.count.shape, None) if state.memory is None else state.memory.copy()
    drawing = np.flatnonzero(votes.samples)
    counts = votes.votes.reshape(-1, votes.votes.shape[-1])[drawing].tolist()
    by_class = [{c: n for c, n in enumerate(row) if n} for row in counts]
    before, chosen = memory.ravel()[drawing].tolist(), state.chosen.ravel()[drawing].tolist()
    found = _advance(plan, noise, before, chosen, by_class, votes.samples.ravel()[drawing])
    for place, standing in zip(drawing.tolist(), found, strict=True):
        memory.flat[place] = standing
    return memory


def remember_each(plan: AtRadii, states: Sequence[State], looks: Sequence[Look], noise: Noise) -> list[Any]:
    """Where each of several inputs stands after a look; None without a class, because no sample had a vote."""
    memories: list[Any] = [None] * len(states)
    if places := [i for i, state in enumerate(states) if state.chosen is not None]:
        before, chosen = [states[i].memory for i in places], [states[i].chosen for i in places]
        votes, samples = [looks[i].votes for i in places], [looks[i].samples for i in places]
        for i, standing in zip(places, _advance(plan, noise, before, chosen, votes, samples), strict=True):
            memories[i] = standing
    return memories


def request(plan: AtRadii, state: State) -> Any:
    """How many more samples are wanted."""
    return min(int(LOOKS[0]), plan.stages[0].ceiling) if state.memory is None else _each(state.memory, "more")


def proved(state: State) -> Any:
    """How many radii are proved."""
    return _each(state.memory, "proved")


def _each(memory: Any, name: str) -> Any:
    """A number of one `Standing`, or of many."""
    if not isinstance(memory, np.ndarray):
        return getattr(memory, name)
    return np.array([getattr(one, name) for one in memory.ravel()]).reshape(memory.shape)


@lru_cache(maxsize=64)
def _start(noise: Noise, radii: tuple[float, ...]) -> Standing:
    return Standing(begin_histories(tangents(noise, radii)), 0, 0, 0, 0)


def _advance(
    plan: AtRadii,
    noise: Noise,
    before: Sequence[Standing | None],
    chosen: Sequence[int],
    votes: Sequence[Mapping[int, int]],
    samples: ArrayLike,
) -> list[Standing]:
    """Where several inputs stand after one more look of each. The first look only teaches the first bet."""
    table = tangents(noise, plan.radii)
    ceilings = np.array([stage.ceiling for stage in plan.stages]) + plan.pilot
    radii = np.array([stage.radii for stage in plan.stages])
    start = _start(noise, plan.radii)
    standing = [one or start for one in before]
    stage = np.array([one.stage for one in standing])
    total = np.array([one.total for one in standing]) + np.asarray(samples)
    following = np.searchsorted(LOOKS, total, side="right")
    histories = update_histories(
        table,
        [one.histories for one in standing],
        votes,
        samples,
        chosen=chosen,
        alpha=plan.alpha,
        look=(LOOKS[following - 1] == total) | (total == plan.pilot),
        radii=radii[stage],
    )
    while True:
        found = outcome(histories, ceilings[stage], alpha=plan.alpha, give_up=plan.give_up)
        ended = (found.proved >= radii[stage]) | found.hopeless | (total >= ceilings[stage])
        passed = ended & (stage < len(radii) - 1)
        if not passed.any():
            break
        stage = stage + passed
    due = np.minimum(LOOKS[following], ceilings[stage])
    more = np.where(ended, 0, due - total)
    numbers = (part.tolist() for part in (total, stage, found.proved, more))
    return [Standing(*one) for one in zip(histories, *numbers, strict=True)]
