"""A smoothed classifier in memory: certify or predict inputs without files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from math import ceil, log2
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike
from scipy.special import betainc
from torch import Tensor, nn

from smoothcert import _check
from smoothcert.data.inputs import as_input, outside
from smoothcert.data.wrap import as_dataset
from smoothcert.device.runtime import Device, Dtype, Runtime, settle_dtype
from smoothcert.errors import InvalidInput
from smoothcert.models.check import check_weights
from smoothcert.models.denoisers import compose, load_denoiser
from smoothcert.models.denoisers.check import check_input, check_output, check_repeatable
from smoothcert.models.seeded import SeededRows
from smoothcert.noises import Noise
from smoothcert.plans import Certificate, Fixed, Look, Plan, State, plan_or_default
from smoothcert.sampling.engine import assemble
from smoothcert.sampling.number_format import without_doubt
from smoothcert.sampling.packing import MOST_IDS
from smoothcert.sampling.streams import check_seed
from smoothcert.smoothed.prepare import prepare


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
        model: Any module or function from a float batch to logits or labels. Tuples, dictionaries and arrays that hold
            the logits will do.
        noise: The smoothing noise.
        classes: The number of classes.
        seed: The key of the noise.
        stochastic: Whether the model is random by design. Its random numbers then depend on the noisy input alone, and
            inputs are classified one at a time; see `SeededRows`.
        denoiser: Removes the noise before the model sees an input; see `load_denoiser`. The certificates are about the
            denoiser and the model together.
        device: "cpu", "cuda", "cuda:N", "mps", a `torch.device` or the number of a CUDA device. Default: the fastest.
        dtype: The number format of the classifier. Default: bfloat16 where the device has it, else float32.
        batch: Rows per forward pass. Default: chosen by measuring.
        compile: "none", "fast", "stages", "default" or "max". Default: "fast" on CUDA, else "none".

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
        model: Callable[[Tensor], Any],
        *,
        noise: Noise,
        classes: int,
        seed: int = 0,
        stochastic: bool = False,
        denoiser: str | Path | nn.Module | None = None,
        device: Device = "auto",
        dtype: Dtype = "auto",
        batch: int | str = "auto",
        compile: str = "auto",
    ) -> None:
        if not callable(model):
            raise InvalidInput(f"model must be a module or function, got {type(model).__name__}")
        if not isinstance(noise, Noise):
            raise InvalidInput(f"noise must be a noise such as Gaussian(0.5), got {noise!r}")
        check_weights(model)
        self.model = model
        self.noise = noise
        self.classes = _check.whole("classes", classes, least=2)
        self.seed = check_seed(_check.whole("seed", seed))
        self._denoiser = None if denoiser is None else load_denoiser(denoiser, stochastic=stochastic)
        composed = model if self._denoiser is None else compose(model, self._denoiser, noise)
        self._module = SeededRows(composed, classes=self.classes) if stochastic else composed
        dtype = settle_dtype(dtype, self._module)
        self._chooses_dtype = dtype == "auto"
        self.runtime = Runtime.resolve(device, dtype, compile, batch)
        self.runtime.check_noise(noise.deviation)
        self._ids = count()
        self._forwarded = 0
        self._warned: set[tuple[int, ...]] = set()
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
        label = None if label is None else _check.whole("label", label)
        [certificate] = self._run([(as_input(x), label, id)], plan_or_default(plan))
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
        [certificate] = self._run([(as_input(x), None, id)], _OneLook(samples=samples, pilot=samples, alpha=alpha))
        look = certificate.looks[0]
        first, second = [*sorted(look.votes.values(), reverse=True), 0, 0][:2]
        # Under equal chances the leader's votes are Binomial(first + second, 1/2); either class could have led.
        p_value = min(2 * float(betainc(first, second + 1, 0.5)), 1.0) if first else 1.0
        return Prediction(look.top if p_value <= alpha else None, 1 - p_value, look)

    def certify_all(
        self,
        images: Any,
        labels: Sequence[int | None] | ArrayLike | None = None,
        *,
        plan: Plan | None = None,
        ids: Sequence[int] | None = None,
    ) -> list[Certificate]:
        """The certificates of many inputs, in their order. Different inputs share batches, so no batch is half empty.

        Nothing is written to disk, so an interruption loses everything: for long runs use `smoothcert.certify`.

        Args:
            images: The inputs, as an array of shape (n, ...), a list, or any other data that `smoothcert.certify`
                takes. Where they come with labels, these are used.
            labels: The label of each input, None or -1 where it is unknown.
            plan: How many samples an input gets. Default: input-specific sampling with its defaults.
            ids: The numbers of their noise, all different. Default: the next ones.
        """
        dataset = as_dataset(images, labels)
        pairs = [dataset[index] for index in range(len(dataset))]
        numbers = [None] * len(pairs) if ids is None else list(ids)
        if len(numbers) != len(pairs) or (ids is not None and len(set(numbers)) < len(numbers)):
            raise InvalidInput(f"ids must be {len(pairs)} different numbers, one per input, got {_shown(numbers)}")
        inputs = [(x, None if label < 0 else label, id) for (x, label), id in zip(pairs, numbers, strict=True)]
        return self._run(inputs, plan_or_default(plan))

    @property
    def forwarded(self) -> int:
        """Rows that went through the classifier for samples so far, including those that only fill up a batch."""
        return self._forwarded

    def _run(self, inputs: Sequence[tuple[Tensor, int | None, int | None]], plan: Plan) -> list[Certificate]:
        """Certificates in the order of the inputs, which come with their label and the number of their noise."""
        shape = tuple(inputs[0][0].shape)
        for number, (x, label, _) in enumerate(inputs):
            which = "the input" if len(inputs) == 1 else f"input {number}"
            self._check_input(x, label, shape, which)
            if label is None and plan.known_labels:
                raise InvalidInput(f"{which} has no label, and known_labels=True needs one for every input")
        noise = self.noise.for_shape(shape)
        plan = plan.for_noise(noise)
        plan.check(noise)
        if shape not in self._prepared:
            if self._denoiser is not None:
                check_output(self._denoiser, inputs[0][0], noise.deviation)
                if not isinstance(self._module, SeededRows):
                    check_repeatable(self._denoiser, inputs[0][0], noise.deviation)
            runtime = self.runtime
            if self._chooses_dtype:
                few = [x for x, *_ in inputs]
                runtime = without_doubt(runtime, self._module, few, classes=self.classes, noise=noise)
            noisy_shape = noise.draw.output_shape(shape)
            self._prepared[shape] = prepare(self._module, self.classes, noisy_shape, runtime, draw=noise.draw)
        classify, runtime = self._prepared[shape]
        ids = [next(self._ids) if id is None else _check.whole("id", id) for *_, id in inputs]
        if max(ids) >= MOST_IDS:
            raise InvalidInput(f"id must be below {MOST_IDS}, got {max(ids)}")
        if len(set(ids)) < len(ids):
            raise InvalidInput("ids must be different numbers")
        engine = assemble(
            classify,
            classes=self.classes,
            shape=shape,
            noise=noise,
            plan=plan,
            runtime=runtime,
            seed=self.seed,
            # A batch size that the user gave is kept, and compiled code and CUDA graphs take one size only.
            flexible=not self.runtime.batch and runtime.compile == "none" and runtime.torch_device.type != "cuda",
        )
        try:
            certificates = engine.certify((id, x, label) for id, (x, label, _) in zip(ids, inputs, strict=True))
            by_id = {certificate.id: certificate for certificate in certificates}
        finally:
            self._forwarded += engine.sampler.forwarded
        return [by_id[id] for id in ids]

    def _check_input(self, x: Tensor, label: int | None, shape: tuple[int, ...], which: str) -> None:
        if not x.numel():
            raise InvalidInput(f"{which} is empty: its shape is {tuple(x.shape)}")
        if tuple(x.shape) != shape:
            raise InvalidInput(f"{which} has shape {tuple(x.shape)}; all must have one, here {shape}")
        if not bool(x.isfinite().all()):
            raise InvalidInput(f"{which} has NaN or infinite values")
        if label is not None and not 0 <= label < self.classes:
            raise InvalidInput(f"{which} has label {label}: labels are numbers from 0 to {self.classes - 1}")
        if self._denoiser is not None:
            check_input(self._denoiser, x, which)
        if shape not in self._warned and outside(x, name=which, stacklevel=4):
            self._warned.add(shape)


class _OneLook(Fixed):
    """Look once; there is nothing to certify."""

    @property
    def most_looks(self) -> int:
        return 1

    def lower_bound(self, state: State, noise: Noise) -> Any:
        return 0.0


def _shown(values: Sequence[Any]) -> str:
    return f"[{', '.join(map(str, values[:5]))}{', ...' if len(values) > 5 else ''}]"
