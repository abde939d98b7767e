"""`attack`: how small a change of an input alters the answer of the smoothed classifier of a run.

A certificate is a lower bound on robustness, and an attack gives an upper bound. The search follows the gradient
through the mean of noisy copies (SmoothAdv, Salman et al. 2019), or the votes where there is no gradient. How a change
was found proves nothing: it counts only if `predict`, with new noise, answers another class. Libraries of attacks do
not fit: they call an input broken by one forward pass, and take one epsilon for all inputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, prod
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert import _check
from smoothcert._registry import differences
from smoothcert.data import select_ids
from smoothcert.device.runtime import place
from smoothcert.errors import InvalidInput, setting
from smoothcert.plans import Certificate
from smoothcert.runs.attacks import Attacks, attacks_on
from smoothcert.runs.journal import Attack, Journal
from smoothcert.runs.manifest import MOST_INPUTS
from smoothcert.runs.run import Run, open_run
from smoothcert.runs.writer import locked_journal
from smoothcert.smoothed import Subject
from smoothcert.tasks.predict import predict
from smoothcert.tasks.recorded_subject import Places, recorded_subject
from smoothcert.training.methods.ascent import Gradient, ascend, loss_gradient
from smoothcert.training.methods.base import noisy_copies

_ORDERS = {"l1": 1, "l2": 2, "linf": np.inf}
_ROWS = 4096
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
    """Attack the smoothed classifier of a run. What is found is kept in the run; the same call again resumes.

    For each input, a first attempt searches at twice the certified radius. Later attempts go further out until one
    succeeds, and then close in on the smallest change by bisection. An input that is certified for another class than
    its label counts as wrong without a change, with the alpha of its certificate.

    Args:
        run: The run, or its folder.
        norm: "l2", "l1" or "linf". Default: the norm of the certificates. Certificates in l2 also hold in linf, with
            smaller radii.
        ids: The inputs to attack, as numbers or as in "0,5,10-20". Default: all of the run.
        limit: Attack at most this many inputs.
        steps: Steps of gradient ascent in an attempt.
        copies: Noisy copies of an input over which the gradient is averaged.
        attempts: Searches for each input.
        samples: The most samples that `predict` may take to decide whether an attempt succeeded.
        alpha: The probability to call an input broken that is not, at most, over all of its attempts.
        restart: Whether to attack again if the run was attacked with other settings. Earlier results are deleted.
        progress: Called with the number of attacked inputs and of all inputs.
        **places: `model=`, `weights=`, `denoiser=` and `data=`: where these are now, as for `audit`.
    """
    run = open_run(run)
    norm = _checked_norm(run, norm)
    counts = {"steps": steps, "copies": copies, "attempts": attempts, "samples": samples}
    checked = {name: _check.whole(name, count, least=1) for name, count in counts.items()}
    search = _Search(norm, **checked, alpha=_check.alpha("alpha", alpha))
    chosen = select_ids(MOST_INPUTS, ids=run.id.tolist() if ids is None else ids, limit=limit)
    uncertified = set(chosen).difference(run.id.tolist())
    if uncertified:
        raise InvalidInput(
            "no-certificate",
            "{folder} has no certificate of input {id}",
            folder=run.path,
            id=min(uncertified),
        )
    smoothed, subject, dataset = recorded_subject(run.manifest, places, purpose="attack")
    attacker = _Attacker(
        smoothed, subject, search, on_grid=getattr(dataset, "levels", None) is not None
    )
    settings = search._asdict() | {
        "shape": list(subject.shape),
        "by": "gradients" if attacker.module else "votes",
    }
    with locked_journal(run.path) as journal:
        distances = _begin_attacks(run, journal, norm, settings, restart=restart)
        todo = [id for id in chosen if id not in distances]
        together = max(_ROWS // attacker.copies, 1)
        for first in range(0, len(todo), together):
            progress(len(chosen) - len(todo) + first, len(chosen))
            part = [
                journal.certificate(id, plan=run.plan, noise=run.noise)
                for id in todo[first : first + together]
            ]
            inputs = torch.stack([subject.read(dataset, c.id)[1] for c in part])
            attacks = attacker.attack(part, inputs)
            journal.add_attacks(norm, attacks)
            distances |= {attack.id: attack.distance for attack in attacks}
        progress(len(chosen), len(chosen))
    return attacks_on(run, norm, settings, distances)


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
            "continue, or {restart} to attack it again",
            folder=run.path,
            differing="; ".join(differing),
            restart=setting("restart", True),
        )
    return distances


def _checked_norm(run: Run, norm: str | None) -> str:
    own = run.noise.norm
    known = {own, *run.noise.other_radii(1.0, (1,))} & set(_ORDERS)
    if not known:
        raise InvalidInput(
            f"there is no attack in {own}, the norm of {run.noise}: it has to be l2 or l1"
        )
    _check.one_of("norm", norm or own, tuple(sorted(known)))
    return norm or own


class _Search(NamedTuple):
    norm: str
    steps: int
    copies: int
    attempts: int
    samples: int
    alpha: float


class _Attacker:
    """Attacks batches of inputs."""

    def __init__(
        self, smoothed: Subject, subject: Subject, search: _Search, *, on_grid: bool
    ) -> None:
        self.smoothed, self.subject, self.search = smoothed, subject, search
        self.step = subject.noise.grid[0] if subject.noise.grid else None
        self.values = (0.0, 1.0) if on_grid or self.step else None  # pictures stay pictures
        runtime = replace(subject.runtime, dtype="float32")
        self.device = runtime.torch_device
        placed = place(subject.classifier.module, runtime, subject.noisy_shape)
        self.module = (
            placed if isinstance(placed, nn.Module) and _has_gradient(placed, subject) else None
        )
        self.classify = None if self.module else subject.ready.classify
        self.copies = search.copies * (1 if self.module else _MORE_COPIES)

    def attack(self, certificates: Sequence[Certificate], x: Tensor) -> list[Attack]:
        """Attack some inputs: the right answer is the label or, without one, the certified class."""
        right = np.array([c.prediction if c.label is None else c.label for c in certificates])
        if any(answer is None for answer in right):
            raise InvalidInput(
                "an input without a label and without a certificate has no answer to attack"
            )
        noise = self.subject.noise
        radius = np.array([c.radius for c in certificates])
        size = noise.deviation / 2
        if self.search.norm != noise.norm:
            radius = noise.other_radii(radius, self.subject.shape)[self.search.norm]
            size = size / prod(self.subject.shape) ** 0.5
        low, distance = np.zeros(len(x)), np.full(len(x), inf)
        epsilon = np.maximum(2 * radius, size)
        best, answer = x.clone(), [c.prediction for c in certificates]
        wrong = np.array(
            [c.prediction not in (None, y) for c, y in zip(certificates, right, strict=True)]
        )
        for attempt in range(self.search.attempts + 1):
            open = np.flatnonzero(~wrong & (distance > 0))
            if not len(open):
                break
            # The first attempt looks at the inputs as they are: some answers are wrong without a change.
            changed = self._search(x[open], right[open], epsilon[open]) if attempt else x[open]
            answers = self._answers(changed)
            lengths = self._lengths(changed, x[open])
            for place_, i in enumerate(open):
                if answers[place_] not in (None, right[i]):
                    if lengths[place_] < distance[i]:
                        best[i], answer[i], distance[i] = (
                            changed[place_],
                            answers[place_],
                            lengths[place_],
                        )
                elif attempt:
                    low[i] = max(low[i], min(epsilon[i], distance[i]))
                epsilon[i] = (
                    (low[i] + distance[i]) / 2
                    if distance[i] < inf
                    else epsilon[i] * (2 if low[i] else 1)
                )
        distance[wrong] = 0.0
        return [
            Attack(c.id, float(d), answer[i], best[i].float().numpy().tobytes())
            if d < inf
            else Attack(c.id, inf)
            for i, (c, d) in enumerate(zip(certificates, distance, strict=True))
        ]

    def _search(self, x: Tensor, right: Any, epsilon: Any) -> Tensor:
        shape = (-1, *[1] * (x.ndim - 1))
        x, labels = (
            x.to(self.device, torch.float32),
            torch.from_numpy(right.astype(np.int64)).to(self.device),
        )
        length = torch.from_numpy(epsilon).to(x).view(shape)
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(self.smoothed.next_key("attack"))
            noisy = noisy_copies(x, self.copies, sigma=0.0, noise=self.subject.noise)
            gradient, steps, norm = (
                self._gradient(x, labels, noisy - x),
                self.search.steps,
                self.search.norm,
            )
            found = ascend(gradient, x, epsilon=length, steps=steps, norm=norm, values=self.values)
        found = found.detach().cpu()
        return found if self.step is None else (found / self.step).round() * self.step

    def _gradient(self, x: Tensor, labels: Tensor, noise: Tensor) -> Gradient:
        if self.module is not None:
            return loss_gradient(self.module, labels, noise)
        assert self.classify is not None
        classify, dtype = self.classify, self.subject.runtime.torch_dtype
        rows = self.subject.ready.runtime.batch
        scale = torch.ones(len(x), *[1] * (x.ndim - 1), device=x.device)

        @torch.inference_mode()
        def towards_other_answers(x: Tensor) -> Tensor:
            """The mean noise of other answers less that of the right one: along the gradient for Gaussian noise."""
            noisy = (x + scale * noise).flatten(0, 1).to(dtype)
            answers = torch.cat([classify(part) for part in torch.split(noisy, rows)])
            other = (
                (answers.view(len(noise), -1) != labels)
                .to(noise)
                .view(*noise.shape[:2], *scale.shape[1:])
            )
            unanimous = other.amax(0) == other.amin(0)
            scale.copy_(
                torch.where(unanimous, 2 * scale, scale)
            )  # further away, there are other answers
            return torch.where(unanimous, noise[0], (noise * (other - other.mean(0))).mean(0))

        return towards_other_answers

    def _answers(self, x: Tensor) -> list[int | None]:
        """The answers of the smoothed classifier. All attempts on an input share alpha."""
        level = self.search.alpha / (self.search.attempts + 1)
        with warnings.catch_warnings(action="ignore"):  # the run has warned about such inputs
            return [
                found.prediction
                for found in predict(self.smoothed, x, samples=self.search.samples, alpha=level)
            ]

    def _lengths(self, changed: Tensor, x: Tensor) -> Any:
        change = (changed.double() - x.double()).flatten(1).numpy()
        return np.linalg.norm(change, ord=_ORDERS[self.search.norm], axis=1)


def _has_gradient(module: nn.Module, subject: Subject) -> bool:
    """Whether the outputs of a module depend on its inputs in a way that torch can differentiate."""
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    x = torch.rand(
        1, 1, *subject.noisy_shape, device=next(module.parameters(), torch.empty(0)).device
    )
    labels = torch.zeros(1, dtype=torch.int64, device=x.device)
    try:
        return bool(loss_gradient(module, labels, torch.zeros_like(x))(x[0]).any())
    except Exception:  # the user's module may raise any error; then its votes show the way
        return False
