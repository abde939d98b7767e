"""Draw inputs of a run again, for its audit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from smoothcert.device.acceleration import KernelClassifier
from smoothcert.device.runtime import say_nothing
from smoothcert.errors import InvalidInput
from smoothcert.executors import Executor, Job, LocalExecutor, Status
from smoothcert.noises.base import VERSION
from smoothcert.plans import Certificate
from smoothcert.runs.manifest import Manifest
from smoothcert.smoothed import ReadySubject
from smoothcert.tasks.budget import surveyed_votes
from smoothcert.tasks.recorded_subject import RecordedSubject
from smoothcert.tasks.survey import survey_again


def drawn_otherwise(
    chosen: Sequence[Certificate], manifest: Manifest, recorded: RecordedSubject
) -> Iterator[tuple[int, str]]:
    """Draw the votes of these inputs again, and the votes of the survey for them."""
    if not chosen:
        return
    if manifest.drawing != VERSION:
        raise InvalidInput(
            "other-drawing",
            "cannot draw again: this version of smoothcert draws other noise for the same seed",
        )
    job = Job(recorded.subject, recorded.dataset, manifest.plan)
    with LocalExecutor(_with_other_neighbours(recorded.subject.prepare())) as executor:
        runtime = executor.start(job, say_nothing)
        if runtime.compile != manifest.compile:
            raise InvalidInput(
                "other-runtime",
                "cannot draw again: the classifier of the run was compiled: {there}, and here it "
                "would be compiled: {here}",
                there=manifest.compile,
                here=runtime.compile,
            )
        yield from _other_looks(executor, chosen)
        votes = surveyed_votes(manifest)
        surveyed = {c.id: votes[c.id] for c in chosen if c.id in votes}
        for id, votes_again in survey_again(executor, job, surveyed).items():
            if votes_again != votes[id]:
                yield id, "drawing it again gave other votes in the survey of the budget"
        status = executor.status()
    other_range = _other_range(manifest, status)
    if other_range is not None:
        yield chosen[0].id, other_range


def _other_range(manifest: Manifest, status: Status) -> str | None:
    """How the values of inputs exceed those that the run states; None if they do not."""
    low, high = manifest.values or (status.lowest, status.highest)
    if low <= status.lowest and status.highest <= high:
        return None
    return (
        f"inputs that were drawn again have values in [{status.lowest:g}, "
        f"{status.highest:g}], the run states [{low:g}, {high:g}]"
    )


def _other_looks(executor: Executor, chosen: Sequence[Certificate]) -> Iterator[tuple[int, str]]:
    """Inputs that get other votes if they are certified again, in another order than before."""
    looks = {c.id: c.looks for c in chosen}
    for plan in dict.fromkeys(c.plan for c in chosen):
        ids = sorted((c.id for c in chosen if c.plan == plan), reverse=True)
        for finished in executor.certify(ids, plan):
            for again in finished:
                if again.looks != looks.pop(again.id):
                    yield again.id, "drawing it again gave other votes"
    for id in looks:
        yield id, "it was not drawn again"


def _with_other_neighbours(ready: ReadySubject) -> ReadySubject:
    """The same classifier on batches in reverse order, so that rows have other neighbours.

    Our own kernels compute each row alone, and they draw the noise of their rows themselves.
    """
    classify = ready.classify
    if isinstance(classify, KernelClassifier):
        return ready

    def reverse(x: Tensor) -> Tensor:
        with torch.inference_mode(False):  # torch would compile again for inference tensors
            backwards = x.flip(0)
        return classify(backwards).flip(0)

    return replace(ready, classify=reverse)
