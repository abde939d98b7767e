"""`Smooth`, as in the code of Cohen et al. (2019) and in many programs that copied it.

Write `from smoothcert.compat.cohen import Smooth` in place of `from core import Smooth`. The rest of the program stays.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from smoothcert import _check
from smoothcert.compat._current import Current, plan_for, vote
from smoothcert.noises import Gaussian
from smoothcert.tasks.certify import certify


class Smooth:
    """A smoothed classifier with the interface of Cohen et al. (2019).

    It draws as many samples as theirs, and its certificates are theirs with bounds rounded outward. Noise is keyed: the
    same seed and the same order of calls give the same answers.

    Args:
        base_classifier: A module or function from a batch of inputs to logits. It runs where its parameters are.
        num_classes: The number of classes.
        sigma: The standard deviation of the Gaussian noise.
        decline: How much of each radius may be given up, as in 0.05. `certify` then spends on an input only what it
            needs, and at most n samples. None spends n on every input, as theirs does.
        seed: The key of the noise.
        denoiser: Removes the noise before the classifier sees an input; see `smoothcert.load_denoiser`.

    >>> import torch
    >>> from smoothcert.compat.cohen import Smooth
    >>> smooth = Smooth(lambda x: torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1), num_classes=2, sigma=0.25)
    >>> prediction, radius = smooth.certify(torch.tensor([1.0, 0.0]), n0=100, n=10_000, alpha=0.001, batch_size=1000)
    >>> prediction, 0.45 < radius < 0.5
    (1, True)
    """

    ABSTAIN: ClassVar[int] = -1
    """What is returned instead of a class that the votes do not settle."""

    def __init__(
        self,
        base_classifier: Callable[[Tensor], Tensor],
        num_classes: int,
        sigma: float,
        *,
        decline: float | None = None,
        seed: int = 0,
        denoiser: str | Path | nn.Module | None = None,
    ) -> None:
        self.base_classifier = base_classifier
        self.num_classes = num_classes
        self.sigma = sigma
        self.decline = decline
        self._settings: dict[str, Any] = {"seed": seed, "denoiser": denoiser}
        self._made: tuple[Any, ...] = ()
        self._current()

    def _current(self) -> Current:
        """The classifier as it is now: programs change the attributes of theirs."""
        now = (self.base_classifier, self.num_classes, self.sigma)
        if self._made[1:] != now:
            noise = Gaussian(self.sigma)
            self._made = Current(now[0], noise=noise, classes=self.num_classes, **self._settings), *now
        return self._made[0]  # type: ignore[no-any-return]

    def certify(self, x: Tensor, n0: int, n: int, alpha: float, batch_size: int) -> tuple[int, float]:
        """The class of the smoothed classifier and a radius within which it does not change.

        Args:
            x: One input, without a batch dimension.
            n0: Samples that choose the class.
            n: Samples that bound its probability.
            alpha: The probability of a wrong certificate, at most.
            batch_size: Rows per forward pass; more for small inputs.

        Returns:
            The class and the radius; `ABSTAIN` and 0.0 if nothing is proved.
        """
        plan = plan_for(n, pilot=_check.whole("n0", n0, least=1), alpha=alpha, decline=self.decline)
        smoothed = self._current().smoothed(batch_size, x, x.shape)
        [certificate] = certify(smoothed, [x], plan=plan)
        if certificate.prediction is None:
            return self.ABSTAIN, 0.0
        return certificate.prediction, certificate.radius

    def predict(self, x: Tensor, n: int, alpha: float, batch_size: int) -> int:
        """The class of the smoothed classifier, or `ABSTAIN` if it does not lead beyond chance.

        Args:
            x: One input, without a batch dimension.
            n: Samples.
            alpha: The probability of a wrong answer, at most.
            batch_size: Rows per forward pass; more for small inputs.
        """
        smoothed = self._current().smoothed(batch_size, x, x.shape)
        [(leader, settled)] = vote(smoothed, [x], samples=n, alpha=alpha)
        return leader if settled and leader is not None else self.ABSTAIN
