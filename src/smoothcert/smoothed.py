"""A smoothed classifier in memory: certify or predict single inputs, without files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from math import ceil, log2
from typing import Any

from numpy.typing import ArrayLike
from scipy.special import betainc
from torch import Tensor

from smoothcert import _check
from smoothcert.datasets.inputs import as_input, warn_outside
from smoothcert.device.prepare import prepare
from smoothcert.device.runtime import Runtime, settle_dtype
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.plans import Certificate, Fixed, Look, Plan, State, plan_or_default
from smoothcert.sampler.engine import assemble
from smoothcert.sampler.packing import MOST_IDS


@dataclass(frozen=True)
class Prediction:
    """The class that the smoothed classifier answers with, or None if the votes do not settle it."""

    prediction: int | None
    confidence: float
    """1 - p-value of the test that the two leading classes are equally likely."""
    look: Look


class Smoothed:
    """A smoothed classifier in memory.

    Every input gets noise of its own: each call takes the next number of the stream `seed`, unless `id` says which.
    Bytes and images stand for 0 to 255 and are divided by 255; other numbers are taken as they are. A module is copied
    when it is first needed: after further training, make a new `Smoothed`.

    Args:
        model: Any module or function from a float batch to logits or labels.
        noise: The smoothing noise.
        classes: The number of classes.
        seed: The key of the noise.
        device: "cpu", "cuda", "cuda:N" or "mps". Default: the fastest there is.
        dtype: The number format of the classifier. Default: bfloat16 where the device has it, else float32.
        batch: Rows per forward pass. Default: chosen by measuring.
        compile: "none", "default" or "max". Default: "default" on CUDA, else "none".

    >>> from smoothcert import Gaussian, InputSpecific
    >>> def halves(x):  # the class is the sign of the first number
    ...     return (x[:, 0] > 0).long()
    >>> smoothed = Smoothed(halves, noise=Gaussian(0.5), classes=2, device="cpu", batch=1000)
    >>> certificate = smoothed.certify([0.5, 0.0], plan=InputSpecific(10_000, decline=0.05))
    >>> certificate.prediction, 0.42 < certificate.radius < 0.5
    (1, True)
    """

    def __init__(
        self,
        model: Callable[[Tensor], Tensor],
        *,
        noise: Noise,
        classes: int,
        seed: int = 0,
        device: str = "auto",
        dtype: str = "auto",
        batch: int | str = "auto",
        compile: str = "auto",
    ) -> None:
        if not callable(model):
            raise InvalidInput(f"model must be a module or function, got {type(model).__name__}")
        if not isinstance(noise, Noise):
            raise InvalidInput(f"noise must be a noise such as Gaussian(0.5), got {noise!r}")
        self.model = model
        self.noise = noise
        self.classes = _check.whole("classes", classes, least=2)
        self.seed = _check.whole("seed", seed)
        self.runtime = Runtime.resolve(device, settle_dtype(dtype, model), compile, batch)
        self._ids = count()
        self._prepared: dict[tuple[int, ...], tuple[Callable[[Tensor], Tensor], Runtime]] = {}

    def certify(
        self, x: ArrayLike | Tensor, *, plan: Plan | None = None, id: int | None = None, label: int | None = None
    ) -> Certificate:
        """The certificate of one input.

        Args:
            x: The input.
            plan: How many samples it gets. Default: input-specific sampling with its defaults.
            id: The number of its noise. Default: the next one.
            label: Its label, where it is known.
        """
        [certificate] = self._run(x, plan_or_default(plan), id, label)
        return certificate

    def predict(
        self, x: ArrayLike | Tensor, *, samples: int = 1000, alpha: float = 0.001, id: int | None = None
    ) -> Prediction:
        """The top class if it leads the runner-up beyond chance, else an abstention.

        Args:
            x: The input.
            samples: Noisy copies to classify.
            alpha: The probability of a wrong answer, at most.
            id: The number of its noise. Default: the next one.
        """
        _check.between("alpha", alpha, 0, 1)
        if _check.whole("samples", samples, least=1) < (least := ceil(1 - log2(alpha))):
            raise InvalidInput(
                f"samples {samples} can never settle an answer at alpha {alpha:g}: even unanimous votes could be "
                f"chance; use at least {least}"
            )
        [certificate] = self._run(x, _OneLook(samples=samples, pilot=samples, alpha=alpha), id)
        look = certificate.looks[0]
        first, second = [*sorted(look.votes.values(), reverse=True), 0, 0][:2]
        # Under equal chances the leader's votes are Binomial(first + second, 1/2); either class could have led.
        p_value = min(2 * float(betainc(first, second + 1, 0.5)), 1.0) if first else 1.0
        return Prediction(look.top if p_value <= alpha else None, 1 - p_value, look)

    def _run(self, x: ArrayLike | Tensor, plan: Plan, id: int | None, label: int | None = None) -> list[Certificate]:
        tensor = as_input(x)
        if not tensor.numel():
            raise InvalidInput(f"the input is empty: its shape is {tuple(tensor.shape)}")
        if not bool(tensor.isfinite().all()):
            raise InvalidInput("the input has NaN or infinite values")
        shape = tuple(tensor.shape)
        noise = self.noise.for_shape(shape)
        plan = plan.for_noise(noise)
        plan.check(noise)
        if shape not in self._prepared:
            warn_outside(float(tensor.min()), float(tensor.max()), name="the input", stacklevel=3)
            noisy_shape = noise.draw.output_shape(shape)
            self._prepared[shape] = prepare(self.model, self.classes, noisy_shape, self.runtime)
        classify, runtime = self._prepared[shape]
        number = next(self._ids) if id is None else _check.whole("id", id)
        if number >= MOST_IDS:
            raise InvalidInput(f"id must be below {MOST_IDS}, got {number}")
        engine = assemble(
            classify,
            classes=self.classes,
            shape=shape,
            noise=noise,
            plan=plan,
            runtime=runtime,
            seed=self.seed,
        )
        return list(engine.certify([(number, tensor, label)]))


class _OneLook(Fixed):
    """Look once; there is nothing to certify."""

    @property
    def most_looks(self) -> int:
        return 1

    def lower_bound(self, state: State, noise: Noise) -> Any:
        return 0.0
