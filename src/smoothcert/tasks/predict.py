"""`predict`: the class of the smoothed classifier, or an abstention if the votes do not show it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from smoothcert import _check
from smoothcert._user_errors import naming_user_errors
from smoothcert.data import find_dataset
from smoothcert.data.groups import GroupsSource, read_levels
from smoothcert.plans import Case, Certificate, Exact, Look
from smoothcert.plans.groups import Groups
from smoothcert.plans.top_class import TopClass
from smoothcert.smoothed import Subject
from smoothcert.tasks.request import job_for


@dataclass(frozen=True)
class Prediction:
    """The class that the smoothed classifier answers with, or an abstention, with what is known.

    Args:
        prediction: The class that is most likely, None if the votes do not settle it. It is wrong
            with probability alpha at most.
        look: All votes.
        group: The finest group of classes that is most likely, where the class is not settled and
            groups were given; None otherwise.
    """

    prediction: int | None
    look: Look
    group: str | None = None

    @property
    def leader(self) -> int | None:
        """The class with most votes, also of an abstention; None if there are no votes."""
        return self.look.top

    @property
    def share(self) -> float:
        """The share of votes for the leader: an estimate of its probability, not a bound."""
        return self.look.of(self.leader) / max(self.look.samples, 1)

    @property
    def samples(self) -> int:
        """Noisy copies that were classified."""
        return self.look.samples


@naming_user_errors()
def predict(
    smoothed: Subject,
    x: Any,
    *,
    samples: int = 1000,
    alpha: float = 0.001,
    milliseconds: float | None = None,
    groups: GroupsSource | None = None,
) -> list[Prediction]:
    """See `Smoothed.predict`.

    Bets that the leading class is more likely than every other one decide when the answer is clear.
    They may be looked at after any number of samples. A noise that is not random is counted, as by
    the plan `Exact`.
    """
    if milliseconds is not None:
        _check.at_least("milliseconds", milliseconds, 0)
    samples = _check.whole("samples", samples, least=1)
    alpha = _check.alpha("alpha", alpha)
    dataset = find_dataset(x)
    ids = list(range(len(dataset)))
    subject = smoothed.bind(dataset, ids, in_memory=True)
    levels = []
    if groups is not None:
        levels = read_levels(groups, subject.answers_known, dataset.class_names)
    # Leaders may change with the votes, so each level has its own part of alpha.
    rule: Any = TopClass(samples, alpha / (1 + len(levels)))
    if subject.noise.outcomes is not None:
        rule = Exact()
    job = job_for(subject, dataset, rule, ids)
    engine = subject.ready.engine(job.plan, seed=smoothed.next_key("interactive"))
    end = inf
    if milliseconds is not None:
        # An abstention tells about an input only if the preparation has not used up the time.
        end = time.perf_counter() + milliseconds / 1000
    inputs = (subject.read(dataset, id) for id in ids)
    # Inputs that there is no time for have no votes.
    predictions = [Prediction(None, Look(0, {}))] * len(ids)
    for certificate in engine.certify(inputs, end=end):
        prediction = certificate.proof.prediction
        group = None if prediction is not None else _finest_group(certificate, levels)
        votes = sum(certificate.looks, Look(0, {}))
        predictions[certificate.id] = Prediction(prediction, votes, group)
    return predictions


def _finest_group(certificate: Certificate, levels: Sequence[Groups]) -> str | None:
    """The group of the finest level whose contest the votes settle."""
    for level in reversed(levels):
        looks = map(level.look, certificate.looks)
        case = Case(certificate.plan, certificate.noise, looks=looks)
        group = case.proof().prediction
        if group is not None:
            return level.names[group]
    return None
