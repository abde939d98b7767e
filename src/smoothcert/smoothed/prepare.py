"""Make a subject ready: check it, move it to its device, choose its batch size, compile it."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from math import inf, prod

import torch
from torch import Tensor, nn

from smoothcert._agreement import Outputs, check_labels_of_form
from smoothcert._user_errors import is_our_own, where_raised
from smoothcert.device.acceleration import Declined, KernelClassifier, accelerate
from smoothcert.device.compilation import captured, compiled, cudnn_benchmark
from smoothcert.device.runtime import (
    CHECKED_ROWS,
    Runtime,
    Say,
    blank,
    in_finer_format,
    is_out_of_memory,
    noisy_images,
    place,
    say_nothing,
    synchronize,
    tune_process,
)
from smoothcert.errors import InvalidInput, ModelFailed, SmoothcertError, first_line, warn
from smoothcert.models.outputs import (
    LabelClassifier,
    check_classifier,
    check_full_batch,
)
from smoothcert.models.wrappers import SeededRows
from smoothcert.noises import Draw, Noise, Transformed
from smoothcert.noises.base import Shape
from smoothcert.plans import Rule
from smoothcert.plans.groups import Groups
from smoothcert.sampling.engine import Engine, window
from smoothcert.sampling.sampler import Sampler, VoteCounter
from smoothcert.sampling.views import Views

log = logging.getLogger(__name__)

_SMALLEST_BATCH = 64
_LARGEST_BATCH = {"cuda": 2048, "mps": 1024, "cpu": 1024}
_CUDA_ELEMENTS = 2**26
"""Numbers in a batch that keeps a GPU busy: 512 images of 3x224x224."""
_LONGEST_BATCH_SECONDS = 0.5
"""Longer batches would make the progress display and the read-back of votes coarse."""
_SMALLEST_GAIN = 0.03
"""A larger batch must make a row cheaper by at least this share."""
_TIMING_ROUNDS = 5
_TIMING_SECONDS = 0.5


@dataclass(frozen=True)
class ReadySubject:
    """A classifier that is ready on its device and counts votes.

    Args:
        classify: A function from a noisy batch to one class per row.
        runtime: How it is run: the batch size is chosen, and `compile` names what runs.
        noise: The smoothing noise.
        shape: The shape of an input without noise.
        classes: The number of classes.
        seed: The key of the noise.
        pad: Whether batches are always full. Compiled code and CUDA graphs need that anyway, and
            kernels for any size never do.
        groups: Groups of classes, whose votes are summed; None for votes by class.
    """

    classify: Outputs
    runtime: Runtime
    noise: Noise
    shape: Shape
    classes: int
    seed: int
    pad: bool = True
    groups: Groups | None = None

    def engine(self, plan: Rule, *, seed: int | None = None) -> Engine:
        """An engine that certifies inputs by a plan.

        Args:
            plan: The plan.
            seed: The key of the noise, in place of that of the subject.
        """
        batch = self.runtime.batch
        on_cuda = self.runtime.torch_device.type == "cuda"
        takes_any_size = isinstance(self.classify, KernelClassifier)
        takes_one_size = not takes_any_size and (self.runtime.compile != "none" or on_cuda)
        counter = VoteCounter(
            self.classify,
            self.runtime,
            noise=self.noise,
            shape=self.shape,
            classes=self.classes,
            slots=window(plan.smallest_request or batch, batch, self.shape),
            seed=self.seed if seed is None else seed,
            flexible=takes_any_size or not (self.pad or takes_one_size),
        )
        views = Views(self.noise, counter) if isinstance(self.noise, Transformed) else None
        return Engine(Sampler(counter, self.groups), plan=plan, noise=self.noise, views=views)


def prepare(
    module: Outputs,
    classes: int,
    shape: Shape,
    runtime: Runtime,
    say: Say = say_nothing,
    *,
    draw: Draw | None = None,
    noisy: Tensor | None = None,
) -> tuple[Outputs, Runtime]:
    """Prepare a classifier for batches of one fixed shape.

    Args:
        module: The classifier.
        classes: The number of classes.
        shape: The shape of a noisy input.
        runtime: How to run it.
        say: Shows messages to the user.
        draw: How the noise is drawn, for kernels that draw it themselves.
        noisy: Some noisy inputs, to check full batches with.

    Returns:
        A function from a batch to one class per row, and the runtime with the settings that are
        really used: the batch size is a number, and `compile` names what runs, which differs from
        what was asked for if that failed.

    Raises:
        InvalidInput: The classifier does not return logits or labels, or the batch does not fit
            into memory.
    """
    tune_process(runtime.torch_device)
    preparation = _Preparation(module, classes, shape, runtime, say)
    with torch.inference_mode():
        preparation.check()
        if preparation.runtime.compile in ("fast", "stages"):
            # The first worker of a run tells the others that it runs stage kernels.
            preparation.accelerate(draw)
        return preparation.fit(noisy), preparation.runtime


class _Preparation:
    """The steps of `prepare`, which settle the runtime one by one."""

    def __init__(
        self,
        module: Outputs,
        classes: int,
        shape: Shape,
        runtime: Runtime,
        say: Say,
    ) -> None:
        self.module = module
        self.classes = classes
        self.shape = shape
        self.runtime = runtime
        self.say = say
        self.classifier: LabelClassifier
        self.kernels: KernelClassifier | None = None
        parts = module.modules() if isinstance(module, nn.Module) else ()
        self.is_random = any(isinstance(part, SeededRows) for part in parts)
        # A function may run Python code on every call, and a CUDA graph would skip that code. The
        # same holds for a random classifier.
        self.is_fixed = isinstance(module, nn.Module) and not self.is_random
        if self.is_random:
            log.info("the classifier is random by design, so it runs with compile=none")
            self.runtime = replace(runtime, compile="none")

    def check(self) -> None:
        """Move the classifier to its device, and check its answers for a few inputs."""
        placed = place(self.module, self.runtime, self.shape)
        self.classifier = LabelClassifier(placed, self.classes)
        sample = blank(self.shape, self.runtime, CHECKED_ROWS)
        values = torch.rand(sample.shape, generator=torch.Generator().manual_seed(0))
        sample += values.to(sample)
        check_classifier(placed, self.classes, sample)

    def accelerate(self, draw: Draw | None) -> None:
        """Replace the classifier by a faster form, if there is one that agrees with it."""
        form = accelerate(
            self.module,
            self.classifier.module,
            self.shape,
            self.runtime,
            self.say,
            draw=draw,
        )
        if isinstance(form, KernelClassifier):
            self.kernels = form
            self.classifier = LabelClassifier(form.logits, self.classes)
            self.runtime = replace(self.runtime, compile="stages")
        elif isinstance(form, Declined):
            in_vain = form.disagrees or self.runtime.torch_device.type != "cuda"
            self.runtime = replace(self.runtime, compile="none" if in_vain else "default")
            log.info(
                "the classifier runs with compile=%s, not with fast: %s",
                self.runtime.compile,
                form.reason,
            )
        else:
            self.classifier = LabelClassifier(form, self.classes)
            self.runtime = replace(self.runtime, compile="fast")

    def fit(self, noisy: Tensor | None) -> Outputs:
        """The classifier for full batches. A measured batch is halved until it fits into memory."""
        is_measured = not self.runtime.batch
        if is_measured:
            self._measure_batch()
        while True:
            try:
                return self._checked_form(noisy)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                if not is_measured or self.runtime.batch == 1:
                    raise InvalidInput(
                        "batch-too-large",
                        "a batch of {batch} does not fit into the memory of {device}; use "
                        "`batch=auto` or a smaller batch",
                        batch=self.runtime.batch,
                        device=self.runtime.device,
                    ) from None
                self.runtime = replace(self.runtime, batch=self.runtime.batch // 2)

    def _measure_batch(self) -> None:
        self.say("choosing the batch size")
        if self.kernels is not None:
            batch = self.kernels.best_batch()
        else:
            classify = _naming_errors(self.classifier)
            batch = _fastest_batch(classify, self.shape, self.runtime)
        self.runtime = replace(self.runtime, batch=batch)

    def _checked_form(self, noisy: Tensor | None) -> Outputs:
        """The form of the classifier that runs, after a check of full batches."""
        # A random classifier gets its rows one at a time, so they have no neighbours.
        if noisy is not None and not self.is_random:
            rows = blank(self.shape, self.runtime, len(noisy)).copy_(noisy)
            check_full_batch(_naming_errors(self.classifier.outputs), rows, self.runtime.batch)
        batch = blank(self.shape, self.runtime)
        if self.kernels is not None:
            self.kernels(batch)  # it must fit into memory
            return self.kernels
        on_cuda = self.runtime.torch_device.type == "cuda"
        form, self.runtime = _compile(self.classifier, self.shape, self.runtime, self.say)
        if on_cuda or noisy is None:
            form(batch)  # cuDNN chooses its kernels, and a full batch must fit into memory
        return captured(form, batch) if self.is_fixed and on_cuda else form


def _fastest_batch(classify: Outputs, shape: Shape, runtime: Runtime) -> int:
    """Double the batch size as long as that makes a row cheaper and the batch fits into memory.

    On CUDA, where every new size makes cuDNN choose its kernels again, only two sizes are timed.
    """
    batch = _SMALLEST_BATCH
    largest = _LARGEST_BATCH[runtime.torch_device.type]
    if runtime.torch_device.type == "cuda":
        while 4 * batch <= largest and 4 * batch * prod(shape) <= _CUDA_ELEMENTS:
            batch *= 2
        largest = 2 * batch
    try:
        seconds = _batch_seconds(classify, blank(shape, runtime, batch), repeats=1)
        if 2 * seconds > _LONGEST_BATCH_SECONDS:
            return batch
        while 2 * batch <= largest and _doubling_pays(classify, shape, runtime, batch):
            batch *= 2
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    return batch


def _doubling_pays(classify: Outputs, shape: Shape, runtime: Runtime, batch: int) -> bool:
    """Whether a batch of twice the size makes a row cheaper, and is not too slow.

    Each round times both sizes, one after the other, so that other load on the machine slows down
    both.
    """
    small = blank(shape, runtime, batch)
    large = blank(shape, runtime, 2 * batch)
    small_seconds = inf
    large_seconds = inf
    deadline = time.perf_counter() + _TIMING_SECONDS
    for _ in range(_TIMING_ROUNDS):
        small_seconds = min(small_seconds, _batch_seconds(classify, small))
        large_seconds = min(large_seconds, _batch_seconds(classify, large))
        if time.perf_counter() > deadline:
            break
    worthwhile = (1 - _SMALLEST_GAIN) * 2 * small_seconds
    return large_seconds <= min(worthwhile, _LONGEST_BATCH_SECONDS)


def _batch_seconds(classify: Outputs, x: Tensor, repeats: int = 2) -> float:
    """The fastest of several passes, after one pass that loads kernels and allocates memory."""
    classify(x)
    synchronize(x.device)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        classify(x)
        synchronize(x.device)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _compile(
    classifier: LabelClassifier, shape: Shape, runtime: Runtime, say: Say
) -> tuple[Outputs, Runtime]:
    """The classifier, compiled where the runtime asks for it."""
    if runtime.compile in ("default", "max"):
        say(f"compiling ({runtime.compile}); the result is cached for the next run")
        try:
            form = _with_cudnn_benchmark(
                compiled(classifier, tune=runtime.compile == "max"), runtime
            )
            form(blank(shape, runtime))
            finer = in_finer_format(classifier, runtime)
            check_labels_of_form(form, classifier, finer, noisy_images(shape, runtime))
            return _naming_errors(form), runtime
        except Exception as error:
            if is_out_of_memory(error):
                raise
            cause = getattr(error, "inner_exception", error)  # the compiler wraps errors
            warn(f"compilation failed, the classifier runs uncompiled: {first_line(cause)}")
            runtime = replace(runtime, compile="none")
    return _naming_errors(_with_cudnn_benchmark(classifier, runtime)), runtime


def _naming_errors(classify: Outputs) -> Outputs:
    """The classifier, whose errors become sentences about the model.

    Errors of our own code and of memory stay.
    """

    def call(x: Tensor) -> Tensor:
        try:
            return classify(x)
        except SmoothcertError:
            raise
        except Exception as error:  # a model may raise any error
            if is_out_of_memory(error) or is_our_own(error):
                raise
            raise ModelFailed(
                "model-failed",
                "the model fails with {error}: {reason}{place}",
                error=type(error).__name__,
                reason=first_line(error),
                place=where_raised(error),
            ) from error

    return call


def _with_cudnn_benchmark(classify: Outputs, runtime: Runtime) -> Outputs:
    """On CUDA, let cuDNN choose kernels on the first batch. Later ones have the same shape."""
    if runtime.torch_device.type != "cuda":
        return classify

    def call(x: Tensor) -> Tensor:
        with cudnn_benchmark():
            return classify(x)

    return call
