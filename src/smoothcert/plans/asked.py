"""What recorded votes prove about a question that their run was not made for.

No new sample is needed where the rule of the proof does not depend on who asked for the votes:

- fixed and input-specific sampling: given the pilot, the size of the counted look is fixed, so its
  votes for groups or for each class have the distributions that Clopper-Pearson needs;
- deciding radii: boundaries hold at the same looks whatever made the run stop, because to stop
  early only lowers the chance to reach them; wealth is a supermartingale, also if the votes of the
  class decided when to stop;
- counting all outcomes: nothing is random.

A price stops after votes of the class, and more may be known of other plans: these refuse.

Levels, from coarse to fine (the finest answer): each is claimed at r only where all coarser ones
are proved at r. At one radius every level has the full alpha, because a false claim needs the first
false level. At several radii alpha is divided by the smaller number of levels and radii: a false
claim needs the first false radius of some level, and the first false level of some radius.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.plans.at_radii import AtRadii
from smoothcert.plans.base import Plan, Proof
from smoothcert.plans.betting_radii import BettingRadii
from smoothcert.plans.certificate import Certificate
from smoothcert.plans.decided import DecidingPlan
from smoothcert.plans.exact import Exact
from smoothcert.plans.fixed import Fixed
from smoothcert.plans.follow import proved, told
from smoothcert.plans.groups import Groups
from smoothcert.plans.input_specific import InputSpecific
from smoothcert.plans.two_stage import TwoStagePlan
from smoothcert.plans.votes import ManyVotes
from smoothcert.plans.walk import Walk
from smoothcert.statistics.bounds import Array

_ANSWERING = (Fixed, InputSpecific, AtRadii, BettingRadii, Exact)


@dataclass(frozen=True)
class Question:
    """What is asked.

    Args:
        top: Whether the class stays among so many most probable ones; 1 if that is not asked.
        levels: Groups of classes, from coarse to fine; the classes themselves if that is not asked.
        radii: The radii at which levels are claimed; None for those of the plan, or all.
        alpha: The largest probability that the answer to an input is wrong; None for the alpha of
            the plan.
    """

    top: int
    levels: tuple[Groups, ...]
    radii: tuple[float, ...] | None = None
    alpha: float | None = None

    def divisor(self, plan: Plan) -> int:
        """m: alpha is divided by the smaller number of levels and radii.

        Args:
            plan: The plan of the run.
        """
        radii = self.radii or plan.radii
        return int(min(len(self.levels), inf if radii is None else len(radii)))

    def plan(self, plan: Plan) -> Plan:
        """The plan that proves each level of the answer.

        Args:
            plan: The plan that the votes were drawn by.

        Raises:
            InvalidInput: Its votes do not answer the question.
        """
        if type(plan) not in _ANSWERING:
            raise _answers_nothing(plan)
        changes: dict[str, Any] = {}
        if not isinstance(plan, Exact):
            alpha = plan.alpha if self.alpha is None else self.alpha
            changes["alpha"] = alpha / self.divisor(plan)
        if isinstance(plan, TwoStagePlan):
            changes["pilot_use"] = "fresh"  # votes that chose the class cannot count again
        if isinstance(plan, DecidingPlan) and self.radii is not None:
            changes["radii"] = self.radii
        if self.radii is not None and plan.earlier_plans:
            raise InvalidInput(
                "radii-of-continued-run",
                "a run that was continued answers at its own radii: leave radii out",
            )
        if self.top > 1:
            changes["top"] = self.top
        return replace(plan, **changes)  # type: ignore[type-var]


def _answers_nothing(plan: Plan) -> InvalidInput:
    """The error about a plan whose votes prove nothing but what the plan was for."""
    is_walk = isinstance(plan, Walk)
    return InvalidInput(
        "plan-answers-no-question",
        'the votes of "{plan}" prove nothing else, because they decided {what}: ask when you '
        "certify, with {how}",
        plan=plan,
        what="which pictures to look at" if is_walk else "when to stop",
        how="certify --groups" if is_walk else "certify --groups or --top",
    )


def answers(
    question: Question, plan: Plan, noise: Noise, certificates: Sequence[Certificate], classes: int
) -> list[Proof]:
    """What votes prove about each level of a question, in arrays over inputs.

    Args:
        question: The question.
        plan: The plan that asked for the votes of all these inputs.
        noise: The smoothing noise.
        certificates: The inputs with their votes.
        classes: The number of classes.
    """
    asked = _asked_of(plan, question.plan(plan), noise)
    path = _path(question.levels, plan, certificates, classes)
    states = [asked.init(noise, chosen) for chosen in path]
    in_run = plan.init(noise, _labels(plan, certificates))
    # A pilot that only chose the class is not told to a plan without one.
    first_look = int(plan.pilot > asked.pilot)
    for look in range(first_look, max(len(c.looks) for c in certificates)):
        votes = _votes(certificates, look, classes)
        states = [
            told(asked, state, level.many(votes))
            for state, level in zip(states, question.levels, strict=True)
        ]
        if plan.earlier_plans:
            in_run = told(plan, in_run, votes)
            states = [_in_stages_of(in_run, state, votes) for state in states]
    proofs = [proved(asked, state) for state in states]
    allowed = question.radii if asked.radii is None else None
    claimed = _claimed_radii(proofs, len(certificates), allowed)
    return [
        replace(proof, prediction=chosen, radius=radius)
        for proof, chosen, radius in zip(proofs, path, claimed, strict=True)
    ]


def _asked_of(plan: Plan, asked: Plan, noise: Noise) -> Plan:
    """The plan that proves each level, for votes that another plan has drawn."""
    if isinstance(asked, DecidingPlan) and not plan.earlier_plans:
        # A radius that no votes can prove, where there are smaller ones, is just not proved.
        replace(asked, radii=asked.radii[:1]).for_noise(noise)
    if isinstance(plan, AtRadii) and isinstance(asked, BettingRadii):
        # This pilot has another size than that of bets, and it has chosen the class: from here on,
        # the class is given, which is what plans call known labels.
        return replace(asked, known_labels=True, pilot=0)
    return asked


def _labels(plan: Plan, certificates: Sequence[Certificate]) -> NDArray[np.int64] | None:
    """The classes that are fixed in advance; None if the pilot chooses them."""
    if not plan.known_labels:
        return None
    return np.array([certificate.label for certificate in certificates], np.int64)


def _votes(certificates: Sequence[Certificate], look: int, classes: int) -> ManyVotes:
    """The votes of one look at all inputs, none for those that had fewer looks."""
    samples = np.zeros(len(certificates), np.int64)
    votes = np.zeros((len(certificates), classes), np.int64)
    places = [i for i, certificate in enumerate(certificates) if look < len(certificate.looks)]
    looks = [certificates[place].looks[look] for place in places]
    samples[places] = [one.samples for one in looks]
    rows = np.repeat(places, [len(one.votes) for one in looks])
    columns = [c for one in looks for c in one.votes]
    votes[rows, columns] = [count for one in looks for count in one.votes.values()]
    return ManyVotes(samples, votes)


def _path(
    levels: Sequence[Groups], plan: Plan, certificates: Sequence[Certificate], classes: int
) -> list[NDArray[np.int64]]:
    """The group that each level is asked about: that of the label, or of the pilot.

    The pilot decides from coarse to fine: in the winning group, the winning subgroup.
    """
    labels = _labels(plan, certificates)
    if labels is not None:
        return [np.array(level.of)[labels] for level in levels]
    votes = _votes(certificates, 0, classes)
    path = []
    for level in levels:
        chosen = level.many(votes).top
        in_group = np.array(level.of) == chosen[:, None]
        votes = ManyVotes(votes.samples, np.where(in_group, votes.votes, 0))
        path.append(chosen)
    return path


def _in_stages_of(in_run: Any, state: Any, votes: ManyVotes) -> Any:
    """A state of bets in which every input is in the stage that it has in its continued run.

    A radius that the user added later counts from the sample where it entered the run.
    """
    progress = state.progress.copy()
    for place in np.flatnonzero(votes.samples).tolist():
        stage = in_run.progress[place].stage
        progress[place] = progress[place]._replace(stage=stage)
    return state._replace(progress=progress)


def _claimed_radii(proofs: Sequence[Proof], inputs: int, allowed: Sequence[float] | None) -> Array:
    """The radii at which each level and all coarser ones are proved, (levels, inputs).

    Where only some radii are allowed, it is the largest one below what is proved, NaN if none is.
    """
    radii = [np.broadcast_to(np.array(proof.radius, float), inputs) for proof in proofs]
    proved_by_all = np.minimum.accumulate(radii)  # NaN stays NaN
    if allowed is None:
        return proved_by_all
    steps = np.array([np.nan, *allowed])
    return steps[np.searchsorted(allowed, np.nan_to_num(proved_by_all, nan=-1), side="left")]
