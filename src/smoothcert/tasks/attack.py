"""`attack`: how small a change of an input alters the answer of the smoothed classifier of a run.

A certificate is a lower bound on robustness, and an attack gives an upper bound. The search follows
the gradient through the mean of noisy copies (SmoothAdv, Salman et al. 2019), and the votes where
gradients find nothing. How a change was found proves nothing: it counts only if `predict`, with new
noise, answers another class. Libraries of attacks do not fit: they call an input broken by one
forward pass, and take one epsilon for all inputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from pathlib import Path
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert import _check
from smoothcert._check import NO_CLASS
from smoothcert._registry import differences
from smoothcert._settings import PLACE_NAMES
from smoothcert.data import Dataset, select_ids
from smoothcert.device.runtime import place
from smoothcert.errors import InvalidInput, number_of, warn
from smoothcert.noises import Transformed
from smoothcert.plans import Certificate
from smoothcert.runs.attacks import Attacks, attacks_on
from smoothcert.runs.journal import Attack, Journal
from smoothcert.runs.manifest import MOST_INPUTS
from smoothcert.runs.run import Run, check_has_certificates, locked_journal, open_run
from smoothcert.smoothed import Subject
from smoothcert.tasks.attack_amounts import AmountAttacker
from smoothcert.tasks.predict import predict
from smoothcert.tasks.recorded_subject import Places, recorded_subject
from smoothcert.training.methods.ascent import Gradient, ascend, loss_gradient
from smoothcert.training.methods.base import noisy_copies

Way = Literal["gradients", "votes"]

_ORDERS = {"l1": 1, "l2": 2, "linf": np.inf}
_MOST_ROWS = 4096
"""The most noisy copies in a forward pass of the search."""
_MORE_COPIES = 16
"""A vote tells less than a gradient, so the search by votes takes this many times the copies."""


def attack(
    run: Run | str | Path,
    *,
    norm: str | None = None,
    ids: str | Sequence[int] | None = None,
    limit: int | None = None,
    steps: int = 20,
    copies: int = 16,
    attempts: int = 8,
    samples: int = 10_000,
    alpha: float = 0.001,
    restart: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    **places: Unpack[Places],
) -> Attacks:
    """Attack the smoothed classifier of a run.

    The results are kept in the run; the same call again resumes. For each input, a first attempt
    searches at twice the certified radius. Later attempts go further out until one succeeds, and
    then close in on the smallest change by bisection. Attempts follow gradients. If none of them
    succeeds, or if the model has no gradients, as many attempts follow the votes. An input that is
    certified for another class than its label counts as wrong without a change, with the alpha of
    its certificate. An input with neither label nor certified class is left out, with a warning.

    Args:
        run: The run, or its folder.
        norm: "l2", "l1" or "linf". Default: the norm of the certificates. Certificates in l2 also
            hold in linf, with smaller radii. Of rotations and zooms, it is theirs: `steps` amounts
            on each side of 0 are tried.
        ids: The inputs to attack, as numbers or as in "0,5,10-20". Default: all of the run.
        limit: Attack at most this many inputs.
        steps: Steps of gradient ascent in an attempt.
        copies: Noisy copies of an input over which the gradient is averaged.
        attempts: Searches for each input, by gradients and by votes.
        samples: The most samples that `predict` may take to decide whether an attempt succeeded.
        alpha: The probability to call an input broken that is not, at most, over all of its
            attempts.
        restart: Whether to attack again if the run was attacked with other settings. Earlier
            results are deleted.
        progress: Called with the number of attacked inputs and of all inputs.
        **places: `model=`, `weights=`, `denoiser=` and `data=`: where these are now, as for
            `audit`.
    """
    _check.names("attack", places, PLACE_NAMES)
    run = open_run(run)
    if run.plan.top > 1:
        raise InvalidInput(
            "no-attack-on-top",
            "attacks alter the class, and {run} says that it stays among the top {top}",
            run=run.path,
            top=run.plan.top,
        )
    search = _Search(
        norm=_checked_norm(run, norm),
        steps=_check.whole("steps", steps, least=1),
        copies=_check.whole("copies", copies, least=1),
        attempts=_check.whole("attempts", attempts, least=1),
        samples=_check.whole("samples", samples, least=1),
        alpha=_check.alpha("alpha", alpha),
    )
    chosen = _chosen_ids(run, ids, limit)
    smoothed, subject, dataset = recorded_subject(run.manifest, places, purpose="attack")
    attacker: _Attacker | AmountAttacker
    if isinstance(subject.noise, Transformed):
        settings_of_search = {
            key: value for key, value in search._asdict().items() if key != "norm"
        }
        attacker = AmountAttacker(smoothed, subject, dataset, **settings_of_search)
    else:
        attacker = _Attacker(smoothed, subject, search, dataset)
    settings = search._asdict() | {
        "shape": list(subject.shape),
        "by": ", then ".join(attacker.ways),
    }
    with locked_journal(run.path) as journal:
        distances = _begin_attacks(run, journal, search.norm, settings, restart=restart)
        remaining = [id for id in chosen if id not in distances]
        done = len(chosen) - len(remaining)
        for part in _groups(remaining, attacker.together(attacker.ways[0])):  # type: ignore[arg-type]
            progress(done, len(chosen))
            done += len(part)
            attacks = attacker.attack(
                [journal.certificate(id, plan=run.plan, noise=run.noise) for id in part]
            )
            journal.add_attacks(search.norm, attacks)
            distances |= {attack.id: attack.distance for attack in attacks}
        progress(len(chosen), len(chosen))
    return attacks_on(run, search.norm, settings, distances)


def _chosen_ids(run: Run, ids: str | Sequence[int] | None, limit: int | None) -> list[int]:
    """The inputs to attack: those that are asked for and have a right answer."""
    certified = run.id.tolist()
    chosen = select_ids(MOST_INPUTS, ids=certified if ids is None else ids, limit=limit)
    check_has_certificates(run, chosen)
    unknown = set(run.id[run.abstained & (run.label == NO_CLASS)].tolist())
    attacked = [id for id in chosen if id not in unknown]
    if not attacked:
        raise InvalidInput(
            "no-right-answer",
            "inputs without a label and a certified class have no answer to attack, as all {count} "
            "that were chosen",
            count=len(chosen),
        )
    left_out = len(chosen) - len(attacked)
    if left_out:
        about = f"{number_of(left_out, 'input')} without a label and a certified class"
        warn(f"{about}: left out, because there is no answer to attack")
    return attacked


def _begin_attacks(
    run: Run, journal: Journal, norm: str, settings: dict[str, Any], *, restart: bool
) -> dict[int, float]:
    """The smallest changes that earlier calls found, by id. Other settings are refused."""
    recorded = None if restart else journal.attacks(norm)
    if recorded is None:
        journal.forget_attacks(norm, settings)
        return {}
    earlier_settings, distances = recorded
    differing = differences(earlier_settings, settings)
    if differing:
        raise InvalidInput(
            "attacked-otherwise",
            "{folder} was attacked with other settings: {differing}; give the same ones to "
            "continue, or `restart=True` to attack it again",
            folder=run.path,
            differing="; ".join(differing),
        )
    return distances


def _checked_norm(run: Run, norm: str | None) -> str:
    certified = run.noise.norm
    allowed = {certified, *run.noise.other_radii(1.0, (1,))} & set(_ORDERS)
    if isinstance(run.noise, Transformed):
        allowed = {certified}
    if not allowed:
        raise InvalidInput(
            "no-attack-in-norm",
            "there is no attack in {norm}, the norm of {noise}: it has to be l2 or l1",
            norm=certified,
            noise=run.noise,
        )
    if norm is None:
        norm = certified
    _check.one_of("norm", norm, tuple(sorted(allowed)))
    return norm


class _Search(NamedTuple):
    """The settings of the search."""

    norm: str
    steps: int
    copies: int
    attempts: int
    samples: int
    alpha: float


@dataclass
class _Candidate:
    """The search for the smallest change of one input that alters its answer.

    Args:
        id: The number of the input.
        x: The input.
        right: The right answer.
        first: The length of the first attempt.
        epsilon: The length of the next attempt.
        tried: The largest length at which an attempt failed.
        distance: The length of the smallest change that altered the answer.
        changed: The input after this change.
        answer: The answer to it.
    """

    id: int
    x: Tensor
    right: int
    first: float
    epsilon: float = 0.0
    tried: float = 0.0
    distance: float = inf
    changed: Tensor | None = None
    answer: int | None = None

    def begin(self) -> None:
        """Begin a search, if an earlier one found nothing."""
        self.epsilon = self.first
        self.tried = 0.0

    def succeed(self, changed: Tensor, answer: int, length: float) -> None:
        """Keep a change that altered the answer, if it is the smallest so far."""
        if length < self.distance:
            self.changed = changed
            self.answer = answer
            self.distance = length

    def fail(self) -> None:
        """Remember that the attempt did not alter the answer."""
        self.tried = max(self.tried, min(self.epsilon, self.distance))

    def next_attempt(self) -> None:
        """Go further out until an attempt succeeds, then bisect."""
        if self.distance < inf:
            self.epsilon = (self.tried + self.distance) / 2
        else:
            self.epsilon = 2 * self.epsilon

    def result(self) -> Attack:
        """What the journal keeps."""
        if self.changed is None:
            return Attack(self.id, inf)
        content = self.changed.float().numpy().tobytes()
        return Attack(self.id, self.distance, self.answer, content)


class _Attacker:
    """Attacks batches of inputs."""

    def __init__(
        self, smoothed: Subject, subject: Subject, search: _Search, dataset: Dataset
    ) -> None:
        self.smoothed = smoothed
        self.subject = subject
        self.search = search
        self.dataset = dataset
        self.step = subject.noise.grid[0] if subject.noise.grid else None
        is_picture = self.step is not None or getattr(dataset, "levels", None) is not None
        self.values = (0.0, 1.0) if is_picture else None  # a changed picture stays a picture
        runtime = replace(subject.runtime, dtype="float32")
        self.device = runtime.torch_device
        self.module: nn.Module | None = None
        self.ways: tuple[Way, ...] = ("votes",)
        """What the searches follow, one after the other, until one of them alters the answer."""
        placed = place(subject.classifier.module, runtime, subject.noisy_shape)
        if isinstance(placed, nn.Module) and _has_gradient(placed, subject):
            self.module = placed
            self.ways = ("gradients", "votes")

    def copies(self, way: Way) -> int:
        """The noisy copies of an input that a step looks at."""
        return self.search.copies * (_MORE_COPIES if way == "votes" else 1)

    def together(self, way: Way) -> int:
        """How many inputs are searched together."""
        return max(_MOST_ROWS // self.copies(way), 1)

    def attack(self, certificates: Sequence[Certificate]) -> list[Attack]:
        """Attack the inputs of some certificates."""
        x = [self.subject.read(self.dataset, c.id)[1] for c in certificates]
        lengths = self._first_lengths(certificates)
        candidates = list(map(_candidate, certificates, x, lengths))
        # First we look at the inputs as they are: some answers are wrong without a change.
        unchanged = [candidate for candidate in candidates if candidate.distance > 0]
        if unchanged:
            self._judge(unchanged, torch.stack([candidate.x for candidate in unchanged]))
        for way in self.ways:
            unbroken = [candidate for candidate in candidates if candidate.distance == inf]
            for group in _groups(unbroken, self.together(way)):
                self._search(group, way)
        return [candidate.result() for candidate in candidates]

    def _search(self, candidates: Sequence[_Candidate], way: Way) -> None:
        """Search a smaller and smaller change of each input."""
        for candidate in candidates:
            candidate.begin()
        for _ in range(self.search.attempts):
            self._judge(candidates, self._change(candidates, way))
            for candidate in candidates:
                candidate.next_attempt()

    def _first_lengths(self, certificates: Sequence[Certificate]) -> list[float]:
        """Twice the certified radius of each input, or half a standard deviation of the noise."""
        noise = self.subject.noise
        radius = np.array([c.radius for c in certificates])
        least = noise.deviation / 2
        if self.search.norm != noise.norm:
            radius = noise.other_radii(radius, self.subject.shape)[self.search.norm]
            least = least / prod(self.subject.shape) ** 0.5
        lengths: list[float] = np.maximum(2 * radius, least).tolist()
        return lengths

    def _judge(self, candidates: Sequence[_Candidate], changed: Tensor) -> None:
        """Ask the smoothed classifier about changed inputs."""
        x = torch.stack([candidate.x for candidate in candidates])
        change = (changed.double() - x.double()).flatten(1).numpy()
        lengths = np.linalg.norm(change, ord=_ORDERS[self.search.norm], axis=1).tolist()
        answers = self._answers(changed)
        for candidate, one, answer, length in zip(
            candidates, changed, answers, lengths, strict=True
        ):
            if answer is not None and answer != candidate.right:
                candidate.succeed(one, answer, length)
            else:
                candidate.fail()

    def _change(self, candidates: Sequence[_Candidate], way: Way) -> Tensor:
        """The inputs, changed by at most the length of the next attempt of each."""
        x = torch.stack([candidate.x for candidate in candidates]).to(self.device, torch.float32)
        labels = torch.tensor([candidate.right for candidate in candidates], device=self.device)
        lengths = torch.tensor([candidate.epsilon for candidate in candidates], dtype=torch.float64)
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(self.smoothed.next_key("attack"))
            noisy = noisy_copies(x, self.copies(way), sigma=0.0, noise=self.subject.noise)
            if way == "gradients" and self.module is not None:
                direction = loss_gradient(self.module, labels, noisy - x)
            else:
                direction = self._direction_of_votes(labels, noisy - x)
            changed = ascend(
                direction,
                x,
                epsilon=lengths.to(x).view(-1, *[1] * (x.ndim - 1)),
                steps=self.search.steps,
                norm=self.search.norm,
                values=self.values,
            )
        changed = changed.detach().cpu()
        if self.step is None:
            return changed
        return (changed / self.step).round() * self.step

    def _direction_of_votes(self, labels: Tensor, noise: Tensor) -> Gradient:
        """A stand-in for the gradient, from the votes of noisy copies."""
        ready = self.subject.ready
        dtype = self.subject.runtime.torch_dtype
        rows = ready.runtime.batch
        scale = torch.ones(len(labels), *[1] * (noise.ndim - 2), device=noise.device)

        @torch.inference_mode()
        def towards_other_answers(x: Tensor) -> Tensor:
            """The mean noise of other answers less that of the right one.

            For Gaussian noise, this points along the gradient.
            """
            noisy = (x + scale * noise).flatten(0, 1).to(dtype)
            answers = torch.cat([ready.classify(part) for part in torch.split(noisy, rows)])
            is_other = (answers.view(len(noise), -1) != labels).to(noise)
            other = is_other.view(*noise.shape[:2], *scale.shape[1:])
            unanimous = other.amax(0) == other.amin(0)
            # Further away, there are other answers.
            scale.copy_(torch.where(unanimous, 2 * scale, scale))
            return torch.where(unanimous, noise[0], (noise * (other - other.mean(0))).mean(0))

        return towards_other_answers

    def _answers(self, x: Tensor) -> list[int | None]:
        """The answers of the smoothed classifier. All attempts on an input share alpha."""
        alpha = self.search.alpha / (len(self.ways) * self.search.attempts + 1)
        with warnings.catch_warnings(action="ignore"):  # the run has warned about such inputs
            predictions = predict(self.smoothed, x, samples=self.search.samples, alpha=alpha)
        return [answer.prediction for answer in predictions]


def _candidate(certificate: Certificate, x: Tensor, first: float) -> _Candidate:
    """The search for one input: the right answer is its label or, without one, its class."""
    c = certificate
    right = c.prediction if c.label is None else c.label
    assert right is not None
    candidate = _Candidate(c.id, x, right, first)
    if c.prediction is not None and c.prediction != right:
        candidate.succeed(x, c.prediction, 0.0)  # it is certified for another class
    return candidate


def _groups(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """The items in groups of at most this size."""
    for first in range(0, len(items), size):
        yield items[first : first + size]


def _has_gradient(module: nn.Module, subject: Subject) -> bool:
    """Whether torch can differentiate the outputs of a module with respect to its inputs."""
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    device = next(module.parameters(), torch.empty(0)).device
    x = torch.rand(1, 1, *subject.noisy_shape, device=device)
    labels = torch.zeros(1, dtype=torch.int64, device=device)
    try:
        return bool(loss_gradient(module, labels, torch.zeros_like(x))(x[0]).any())
    except Exception:  # the user's module may raise any error; then its votes show the way
        return False
