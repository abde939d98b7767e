"""Prepare a classifier for a run: check it, move it to its device, choose its batch size, compile and capture it."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, prod
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert._agreement import OTHER_FORM, check_labels_of_form, differing_labels
from smoothcert._user_errors import is_our_own, where_raised
from smoothcert.device.acceleration import Declined, KernelClassifier, accelerate
from smoothcert.device.compilation import captured, compiled, cudnn_benchmark
from smoothcert.device.process_tuning import tune_process
from smoothcert.device.runtime import (
    CHECKED_ROWS,
    Runtime,
    blank,
    in_finer_format,
    noisy_images,
    place,
    synchronize,
)
from smoothcert.device.setup import SetupClock, is_out_of_memory, say_nothing
from smoothcert.errors import (
    InvalidInput,
    ModelFailed,
    SmoothcertError,
    SmoothcertWarning,
    first_line,
    setting,
)
from smoothcert.models.outputs import (
    LabelClassifier,
    SeededRows,
    check_classifier,
    check_full_batch,
)
from smoothcert.noises import Draw, Noise
from smoothcert.sampling.streams import MOST_IDS, HostStream, Segment

log = logging.getLogger(__name__)

_SMALLEST_BATCH = 64
_LARGEST_BATCH = {"cuda": 2048, "mps": 1024, "cpu": 1024}
_CUDA_ELEMENTS = 2**26  # numbers in a batch that keeps a GPU busy: 512 images of 3x224x224
_LONGEST_BATCH_SECONDS = (
    0.5  # longer batches would make the progress display and the read-back of votes coarse
)
_SMALLEST_GAIN = 0.03  # a larger batch must make a row cheaper by at least this share
_TIMING_ROUNDS = 5
_TIMING_SECONDS = 0.5
COMPARED_INPUTS = 8
"""The most inputs that are compared."""

_ROWS = 512
_ROWS_OF_INPUT = 64
_COMPARED_ELEMENTS = 2**24
"""Numbers in one batch on CUDA, where few large batches are much faster than many small ones."""
_MOST_SECONDS = 2.0


def prepare(
    module: Callable[[Tensor], Tensor],
    classes: int,
    shape: tuple[int, ...],
    runtime: Runtime,
    say: Callable[[str], None] = say_nothing,
    clock: SetupClock | None = None,
    *,
    draw: Draw | None = None,
    noisy: Tensor | None = None,
) -> tuple[Callable[[Tensor], Tensor], Runtime]:
    """Prepare a classifier for batches of one fixed shape. `noisy` are some noisy inputs, to check full batches with.

    Returns:
        A function from a batch to one class per row, and the runtime with the settings that are really used: the batch
        size is a number, and `compile` names what runs, which differs from what was asked for if that failed.

    Raises:
        InvalidInput: The classifier does not return logits or labels, or the batch does not fit into memory.
    """
    clock = clock or SetupClock()
    tune_process(runtime.torch_device)
    is_random = isinstance(module, nn.Module) and any(
        isinstance(part, SeededRows) for part in module.modules()
    )
    if is_random:
        log.info("the classifier is random by design, so it runs with compile=none")
        runtime = replace(runtime, compile="none")
    # A function may run Python code on every call, and a CUDA graph would skip that code. So does a random classifier.
    can_capture = (
        runtime.torch_device.type == "cuda" and isinstance(module, nn.Module) and not is_random
    )
    kernels: KernelClassifier | None = None
    with torch.inference_mode():
        with clock.step("check"):
            classifier = LabelClassifier(place(module, runtime, shape), classes)
            sample = blank(shape, runtime, CHECKED_ROWS)
            sample += torch.rand(sample.shape, generator=torch.Generator().manual_seed(0)).to(
                sample
            )
            check_classifier(classifier.module, classes, sample)
        if runtime.compile in (
            "fast",
            "stages",
        ):  # the first worker of a run tells the others what it runs
            found = accelerate(module, classifier.module, shape, runtime, say, clock, draw=draw)
            if isinstance(found, Declined):
                in_vain = found.disagrees or runtime.torch_device.type != "cuda"
                runtime = replace(runtime, compile="none" if in_vain else "default")
                log.info(
                    "the classifier runs with compile=%s, not with fast: %s",
                    runtime.compile,
                    found.reason,
                )
            elif isinstance(found, KernelClassifier):
                runtime = replace(runtime, compile="stages")
                classifier, kernels = LabelClassifier(found.logits, classes), found
            else:
                runtime = replace(runtime, compile="fast")
                classifier = LabelClassifier(found, classes)
        if measured := not runtime.batch:
            say("choosing the batch size")
            with clock.step("batch"):
                named = _naming_errors(classifier)
                batch = (
                    _fastest_batch(named, shape, runtime)
                    if kernels is None
                    else kernels.best_batch()
                )
            runtime = replace(runtime, batch=batch)
        while True:
            try:
                if (
                    noisy is not None and not is_random
                ):  # a random classifier gets its rows one at a time
                    with clock.step("check"):
                        few = blank(shape, runtime, len(noisy)).copy_(noisy)
                        check_full_batch(_naming_errors(classifier.outputs), few, runtime.batch)
                if kernels is not None:
                    kernels(blank(shape, runtime))  # the batch must fit into memory
                    return kernels, runtime
                with clock.step("compile"):
                    form, runtime = _compile(classifier, shape, runtime, say)
                    return captured(form, blank(shape, runtime)) if can_capture else form, runtime
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                if not measured or runtime.batch == 1:
                    raise InvalidInput(
                        f"a batch of {runtime.batch} does not fit into the memory of {runtime.device}; use "
                        f"{setting('batch', 'auto')} or a smaller batch"
                    ) from None
                runtime = replace(runtime, batch=runtime.batch // 2)


def _fastest_batch(
    classify: Callable[[Tensor], Tensor], shape: tuple[int, ...], runtime: Runtime
) -> int:
    """Double the batch size as long as that makes a row cheaper and the batch fits into memory.

    Each round times both sizes, one after the other, so that other load on the machine slows down both. On CUDA, where
    every new size makes cuDNN choose its kernels again, only two sizes are timed.
    """
    batch, largest = _SMALLEST_BATCH, _LARGEST_BATCH[runtime.torch_device.type]
    if runtime.torch_device.type == "cuda":
        while 4 * batch <= largest and 4 * batch * prod(shape) <= _CUDA_ELEMENTS:
            batch *= 2
        largest = 2 * batch
    try:
        if (
            2 * _batch_seconds(classify, blank(shape, runtime, batch), repeats=1)
            > _LONGEST_BATCH_SECONDS
        ):
            return batch
        while 2 * batch <= largest:
            small, large = blank(shape, runtime, batch), blank(shape, runtime, 2 * batch)
            small_seconds = large_seconds = inf
            deadline = time.perf_counter() + _TIMING_SECONDS
            for _ in range(_TIMING_ROUNDS):
                small_seconds = min(small_seconds, _batch_seconds(classify, small))
                large_seconds = min(large_seconds, _batch_seconds(classify, large))
                if time.perf_counter() > deadline:
                    break
            if large_seconds > min(
                (1 - _SMALLEST_GAIN) * 2 * small_seconds, _LONGEST_BATCH_SECONDS
            ):
                break
            batch *= 2
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    return batch


def _batch_seconds(classify: Callable[[Tensor], Tensor], x: Tensor, repeats: int = 2) -> float:
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
    classifier: LabelClassifier,
    shape: tuple[int, ...],
    runtime: Runtime,
    say: Callable[[str], None],
) -> tuple[Callable[[Tensor], Tensor], Runtime]:
    """The classifier, compiled where the runtime asks for it, after a trial on one batch."""
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
            cause = getattr(
                error, "inner_exception", error
            )  # the compiler wraps the original error
            warnings.warn(
                f"compilation failed, the classifier runs uncompiled: {first_line(cause)}",
                stacklevel=2,
            )
            runtime = replace(runtime, compile="none")
    uncompiled = _naming_errors(_with_cudnn_benchmark(classifier, runtime))
    uncompiled(blank(shape, runtime))
    return uncompiled, runtime


def _naming_errors(classify: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The classifier, whose errors become sentences about the model. Errors of our own code and of memory stay."""

    def call(x: Tensor) -> Tensor:
        try:
            return classify(x)
        except SmoothcertError:
            raise
        except Exception as error:  # a model may raise any error
            if is_out_of_memory(error) or is_our_own(error):
                raise
            raise ModelFailed(
                f"the model fails with {type(error).__name__}: {first_line(error)}{where_raised(error)}"
            ) from error

    return call


def _with_cudnn_benchmark(
    classify: Callable[[Tensor], Tensor], runtime: Runtime
) -> Callable[[Tensor], Tensor]:
    """On CUDA, let cuDNN choose kernels on the first batch. All later batches have the same shape."""
    if runtime.torch_device.type != "cuda":
        return classify

    def call(x: Tensor) -> Tensor:
        with cudnn_benchmark():
            return classify(x)

    return call


def settle_number_format(
    runtime: Runtime,
    module: Callable[[Tensor], Any],
    inputs: Sequence[Tensor],
    *,
    classes: int,
    noise: Noise,
) -> Runtime:
    """The runtime, or the same in a finer number format if labels often differ from those in float32.

    The format is replaced, with one warning, if more than 2% of the labels of noisy inputs differ: on CUDA, bfloat16 by
    float16, which is as fast and has three more significant bits, or else by float32. A module that is random by design
    cannot be compared.
    """
    if runtime.torch_dtype.itemsize >= 4 or isinstance(module, SeededRows):
        return runtime
    inputs = [x for x in inputs[:COMPARED_INPUTS] if bool(x.isfinite().all())]
    if not inputs:
        return runtime
    to_try = [runtime.dtype]
    if runtime.torch_device.type == "cuda" and runtime.dtype == "bfloat16":
        to_try.append("float16")
    shares = []
    for dtype in to_try:
        try:
            shares.append(_differing(replace(runtime, dtype=dtype), module, inputs, classes, noise))
        except (
            Exception
        ):  # a classifier that fails, for any reason, is reported when it is prepared
            return runtime
        if shares[-1] <= OTHER_FORM.labels:
            break
    else:
        dtype = "float32"
    if dtype != runtime.dtype:
        message = (
            f"in {runtime.dtype}, {shares[0]:.0%} of the labels of noisy inputs differ from those in float32, so the "
            f"classifier runs in {dtype}; give {setting('dtype', runtime.dtype)} to keep {runtime.dtype}"
        )
        warnings.warn(SmoothcertWarning(message), stacklevel=3)
    return replace(runtime, dtype=dtype)


@torch.inference_mode()
def _differing(
    runtime: Runtime,
    module: Callable[[Tensor], Any],
    inputs: Sequence[Tensor],
    classes: int,
    noise: Noise,
) -> float:
    """The share of labels that differ, over noisy copies of the inputs in turn, as many as two seconds allow."""
    if (
        runtime.torch_device.type == "cuda" and not torch.cuda.is_available()
    ):  # the workers have the device
        runtime = replace(runtime, device="cpu")
    shape = noise.draw.output_shape(tuple(inputs[0].shape))
    exact_runtime = replace(runtime, dtype="float32")
    reduced, exact = (
        LabelClassifier(place(module, like, shape), classes).eval()
        for like in (runtime, exact_runtime)
    )
    stream = HostStream(0, noise.draw)
    clean = torch.stack([x.float() for x in inputs]).to(runtime.torch_device)
    together = (
        _COMPARED_ELEMENTS // (_ROWS_OF_INPUT * prod(shape))
        if runtime.torch_device.type == "cuda"
        else 1
    )
    step = _ROWS_OF_INPUT * min(max(together, 1), _ROWS // _ROWS_OF_INPUT)
    rows, differing = 0, 0.0
    deadline = time.perf_counter() + _MOST_SECONDS
    while rows < _ROWS and (not rows or time.perf_counter() < deadline):
        noisy = blank(shape, exact_runtime, step)
        for first in range(rows, rows + step, _ROWS_OF_INPUT):
            slot = first // _ROWS_OF_INPUT % len(inputs)
            # No input of a run has such a number, so these noisy copies are used for nothing else.
            segment = Segment(slot, MOST_IDS + slot, first, _ROWS_OF_INPUT)
            stream.write(noisy[first - rows :], clean, [segment], torch.empty(0))
        differing += differing_labels(reduced(noisy.to(runtime.torch_dtype)), exact(noisy)) * step
        rows += step
    return differing / rows
