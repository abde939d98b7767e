"""`attack`: how small a change of an input alters the answer of the smoothed classifier of a run.

A certificate is a lower bound on robustness, and an attack gives an upper bound. The search follows
the gradient through the mean of noisy copies (SmoothAdv, Salman et al. 2019), and the votes where
gradients find nothing. How a change was found proves nothing: it counts only if `predict`, with new
noise, answers another class. Libraries of attacks do not fit: they call an input broken by one
forward pass, and take one epsilon for all inputs.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf, prod
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from smoothcert import _check
from smoothcert._check import NO_CLASS
from smoothcert._registry import differences
from smoothcert._settings import PLACE_NAMES
from smoothcert.data import select_ids
from smoothcert.device.runtime import place
from smoothcert.errors import InvalidInput, number_of, warn
from smoothcert.noises import Transformed
from smoothcert.plans import Certificate
from smoothcert.runs.attacks import Attacks, attacks_on
from smoothcert.runs.journal import Attack, Journal
from smoothcert.runs.manifest import MOST_INPUTS
from smoothcert.runs.run import Run, check_has_certificates, locked_journal, open_run
from smoothcert.smoothed import Subject
from smoothcert.tasks.predict import Prediction, predict
from smoothcert.tasks.recorded_subject import Places, RecordedSubject, recorded_subject
from smoothcert.training.methods.ascent import Gradient, ascend, loss_gradient
from smoothcert.training.methods.base import noisy_copies
from smoothcert.transformations.pictures import transform

_ORDERS = {"l1": 1, "l2": 2, "linf": np.inf}
"""The norms in which changes are searched."""
_MOST_ROWS = 4096
"""The most noisy copies in a forward pass of the search."""
_MORE_COPIES = 16
"""A vote tells less than a gradient, so the search by votes takes this many times the copies."""
_PICTURES_TOGETHER = 8
"""Inputs whose amounts are searched together."""
_COPIES_OF_AMOUNT = 4
"""Every amount is looked at with this many times the noisy copies of a step."""


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
    search = _Search(_checked_norm(run, norm), steps, copies, attempts, samples, alpha)
    chosen = _chosen_ids(run, ids, limit)
    recorded = recorded_subject(run.manifest, places, purpose="attack")
    kind: type[_Attacker] = _ChangeAttacker
    if isinstance(run.noise, Transformed):
        kind = _AmountAttacker
    attacker = kind(recorded, search)
    settings = asdict(search) | {
        "shape": list(recorded.subject.shape),
        "by": ", then ".join(attacker.ways),
    }
    with locked_journal(run.path) as journal:
        distances = _begin_attacks(run, journal, search.norm, settings, restart=restart)
        remaining = [id for id in chosen if id not in distances]
        size = attacker.together(attacker.ways[0])
        for first in range(0, len(remaining), size):
            progress(len(chosen) - len(remaining) + first, len(chosen))
            part = remaining[first : first + size]
            attacks = attacker.attack([journal.certificate(id, run.manifest) for id in part])
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
    allowed = {certified}
    if not isinstance(run.noise, Transformed):
        allowed = {certified, *run.noise.other_radii(1.0, (1,))}.intersection(_ORDERS)
    if not allowed:
        raise InvalidInput(
            "no-attack-in-norm",
            "there is no attack in {norm}, the norm of {noise}: it has to be l2 or l1",
            norm=certified,
            noise=run.noise,
        )
    chosen: str = _check.one_of("norm", norm or certified, tuple(sorted(allowed)))
    return chosen


@dataclass(frozen=True)
class _Search:
    """The settings of a search. See `attack`."""

    norm: str
    steps: int
    copies: int
    attempts: int
    samples: int
    alpha: float

    def __post_init__(self) -> None:
        _check.fields(self, _check.whole, "steps", "copies", "attempts", "samples", least=1)
        _check.fields(self, _check.alpha, "alpha")


@dataclass
class _Candidate:
    """An input whose answer is to be altered.

    Args:
        x: The input.
        right: The right answer.
        radius: The certified radius.
        attack: The smallest change that altered the answer so far.
    """

    x: Tensor
    right: int
    radius: float
    attack: Attack

    def keep(self, changed: Tensor, answer: int, length: float) -> None:
        """Keep a change that altered the answer, if it is the smallest so far."""
        if length < self.attack.distance:
            content = changed.float().numpy().tobytes()
            self.attack = Attack(self.attack.id, length, answer, content)


class _Attacker(ABC):
    """Base of both searches.

    Args:
        recorded: The smoothed classifier of a run, and its data.
        search: The settings.
    """

    ways: tuple[str, ...]
    """What the searches follow, one after the other, until one of them alters the answer."""

    def __init__(self, recorded: RecordedSubject, search: _Search) -> None:
        self.smoothed, self.subject, self.dataset = recorded
        self.search = search

    @abstractmethod
    def together(self, way: str) -> int:
        """How many inputs are searched together."""

    @abstractmethod
    def try_all(self, candidates: Sequence[_Candidate]) -> None:
        """Search a change of each input. No answer to them is known to be wrong yet."""

    def attack(self, certificates: Sequence[Certificate]) -> list[Attack]:
        """Attack the inputs of some certificates."""
        candidates = list(map(self._candidate, certificates))
        right = [candidate for candidate in candidates if candidate.attack.distance == inf]
        if right:
            self.try_all(right)
        return [candidate.attack for candidate in candidates]

    def _candidate(self, certificate: Certificate) -> _Candidate:
        """An input. The right answer is its label or, without one, its class."""
        c = certificate
        x = self.subject.read(self.dataset, c.id)[1]
        right = c.prediction if c.label is None else c.label
        assert right is not None
        candidate = _Candidate(x, right, c.radius, Attack(c.id, inf))
        if c.prediction is not None and c.prediction != right:
            candidate.keep(x, c.prediction, 0.0)  # it is certified for another class
        return candidate

    def judge(
        self, candidates: Sequence[_Candidate], changed: Tensor, lengths: Sequence[float]
    ) -> list[bool]:
        """Whether the smoothed classifier answers otherwise to each changed input."""
        altered = []
        answers = self.answers(changed, self.search.samples)
        for candidate, x, answer, length in zip(candidates, changed, answers, lengths, strict=True):
            is_altered = answer.prediction not in (None, candidate.right)
            if answer.prediction is not None and is_altered:
                candidate.keep(x, answer.prediction, length)
            altered.append(is_altered)
        return altered

    def answers(self, x: Tensor, samples: int) -> list[Prediction]:
        """The answers of the smoothed classifier. All attempts on an input share alpha."""
        alpha = self.search.alpha / (len(self.ways) * self.search.attempts + 1)
        with warnings.catch_warnings(action="ignore"):  # the run has warned about such inputs
            return predict(self.smoothed, x, samples=samples, alpha=alpha)


class _AmountAttacker(_Attacker):
    """Searches the smallest amount of a transformation that alters the answer.

    A few votes show at which amounts of a grid another class may lead. The smallest of these are
    asked about with as many samples as a proof needs.
    """

    ways = ("amounts",)

    def together(self, way: str) -> int:
        return _PICTURES_TOGETHER

    def try_all(self, candidates: Sequence[_Candidate]) -> None:
        noise = self.subject.noise
        assert isinstance(noise, Transformed)
        side = torch.linspace(0, noise.largest, self.search.steps + 1, dtype=torch.float64)[1:]
        amounts = torch.cat([torch.zeros(1, dtype=torch.float64), side, -side])
        amounts = amounts[amounts.abs().argsort(stable=True)]
        grids = [
            transform(c.x.expand(len(amounts), *c.x.shape), noise, amounts).float()
            for c in candidates
        ]
        looks = self.answers(torch.cat(grids), _COPIES_OF_AMOUNT * self.search.copies)
        leaders = np.array([look.leader for look in looks]).reshape(len(grids), -1)
        asked: list[_Candidate] = []
        changed: list[Tensor] = []
        lengths: list[float] = []
        for candidate, grid, row in zip(candidates, grids, leaders, strict=True):
            suspects = np.flatnonzero(row != candidate.right)[: self.search.attempts]
            asked += [candidate] * len(suspects)
            changed += [grid[place] for place in suspects]
            lengths += amounts[suspects].abs().tolist()
        if asked:
            self.judge(asked, torch.stack(changed), lengths)


class _ChangeAttacker(_Attacker):
    """Searches small changes of every number of an input."""

    def __init__(self, recorded: RecordedSubject, search: _Search) -> None:
        super().__init__(recorded, search)
        subject = self.subject
        self.step = subject.noise.grid[0] if subject.noise.grid else None
        is_picture = self.step is not None or getattr(self.dataset, "levels", None) is not None
        self.values = (0.0, 1.0) if is_picture else None  # a changed picture stays a picture
        runtime = replace(subject.runtime, dtype="float32")
        self.device = runtime.torch_device
        self.module: nn.Module | None = None
        self.ways = ("votes",)
        placed = place(subject.classifier.module, runtime, subject.noisy_shape)
        if isinstance(placed, nn.Module) and _has_gradient(placed, subject):
            self.module = placed
            self.ways = ("gradients", "votes")

    def copies(self, way: str) -> int:
        """The noisy copies of an input that a step looks at."""
        return self.search.copies * (_MORE_COPIES if way == "votes" else 1)

    def together(self, way: str) -> int:
        return max(_MOST_ROWS // self.copies(way), 1)

    def try_all(self, candidates: Sequence[_Candidate]) -> None:
        # First we look at the inputs as they are: some answers are wrong without a change.
        x = torch.stack([candidate.x for candidate in candidates])
        self.judge(candidates, x, [0.0] * len(x))
        for way in self.ways:
            unbroken = [candidate for candidate in candidates if candidate.attack.distance == inf]
            size = self.together(way)
            for first in range(0, len(unbroken), size):
                self._approach(unbroken[first : first + size], way)

    def _approach(self, candidates: Sequence[_Candidate], way: str) -> None:
        """Go further out until an attempt alters the answer, then bisect."""
        x = torch.stack([candidate.x for candidate in candidates])
        labels = torch.tensor([candidate.right for candidate in candidates], device=self.device)
        epsilon = self._starting_radii(candidates)
        largest_failure = np.zeros(len(candidates))
        for _ in range(self.search.attempts):
            changed = self._change(x, labels, epsilon, way)
            change = (changed.double() - x.double()).flatten(1).numpy()
            lengths = np.linalg.norm(change, ord=_ORDERS[self.search.norm], axis=1).tolist()
            altered = self.judge(candidates, changed, lengths)
            distance = np.array([candidate.attack.distance for candidate in candidates])
            failure = np.where(altered, 0.0, np.minimum(epsilon, distance))
            largest_failure = np.maximum(largest_failure, failure)
            middle = (largest_failure + distance) / 2
            epsilon = np.where(distance < inf, middle, 2 * epsilon)

    def _starting_radii(self, candidates: Sequence[_Candidate]) -> NDArray[np.float64]:
        """Twice the certified radius of each input, or half a standard deviation of the noise."""
        noise = self.subject.noise
        radius = np.array([candidate.radius for candidate in candidates])
        least = noise.deviation / 2
        if self.search.norm != noise.norm:
            radius = noise.other_radii(radius, self.subject.shape)[self.search.norm]
            least = least / prod(self.subject.shape) ** 0.5
        lengths: NDArray[np.float64] = np.maximum(2 * radius, least)
        return lengths

    def _change(self, x: Tensor, labels: Tensor, epsilon: NDArray[np.float64], way: str) -> Tensor:
        """The inputs, each changed by at most the length of its next attempt."""
        x = x.to(self.device, torch.float32)
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
                epsilon=torch.from_numpy(epsilon).to(x).view(-1, *[1] * (x.ndim - 1)),
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
