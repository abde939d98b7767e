"""The classifier as it will be run: checked, placed, compiled, recorded, with a batch size that suits it."""

from __future__ import annotations

import copy
import logging
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.classifiers.check import check_classifier
from smoothcert.errors import InvalidInput, first_line
from smoothcert.recording import kernels_by_timing, record
from smoothcert.sampler.runtime import Runtime, blank, keep_freed_memory, synchronize

log = logging.getLogger(__name__)

_MOST_COMPILED = 256  # classifiers in one process
_CHECKED = 8  # rows that the classifier answers before the run
_SMALLEST_BATCH = 64  # of those that are timed
_LARGEST_BATCH = {"cuda": 2048, "mps": 1024, "cpu": 1024}
_TURNS, _PATIENCE = 5, 0.5  # of timing two sizes; seconds
_LONGEST_BATCH = 0.5  # seconds; a longer one makes progress and read-back coarse


class Voting(nn.Module):
    """A classifier that answers with a class per row; `classes` stands for "no vote" (an output that is not finite)."""

    def __init__(self, module: Callable[[Tensor], Tensor], classes: int) -> None:
        super().__init__()
        self.module = module
        self.classes = classes

    def forward(self, x: Tensor) -> Tensor:
        output = self.module(x)
        if output.ndim == 1:
            return torch.where((output >= 0) & (output < self.classes), output.long(), self.classes)
        return torch.where(output.isfinite().all(1), output.argmax(1), self.classes)


def prepare(
    module: Callable[[Tensor], Tensor],
    classes: int,
    shape: tuple[int, ...],
    runtime: Runtime,
    say: Callable[[str], None] = lambda message: None,
) -> tuple[Callable[[Tensor], Tensor], Runtime]:
    """The classifier as it will be run, and the runtime with its batch size settled."""
    voting = Voting(place(module, runtime, shape), classes)
    keep_freed_memory(runtime.torch_device)
    with torch.inference_mode():
        sample = blank(shape, runtime, _CHECKED)
        sample += torch.rand(sample.shape, generator=torch.Generator().manual_seed(0)).to(sample)
        check_classifier(voting.module, classes, sample)
        if measured := not runtime.batch:
            say("choosing the batch size")
            runtime = replace(runtime, batch=_best_batch(voting, shape, runtime))
        while True:
            try:
                return _ready(voting, shape, runtime, say)
            except RuntimeError as error:
                if not _out_of_memory(error):
                    raise
                smaller = max(runtime.batch // 2, 1)
                if not measured or runtime.batch == 1:
                    raise InvalidInput(
                        f"a batch of {runtime.batch} does not fit into the memory of {runtime.device}; use --batch "
                        f"auto or a smaller one, such as {smaller}"
                    ) from None
                runtime = replace(runtime, batch=smaller)


def _ready(
    voting: Voting, shape: tuple[int, ...], runtime: Runtime, say: Callable[[str], None]
) -> tuple[Callable[[Tensor], Tensor], Runtime]:
    """Compiled, if that is wanted and works, and tried on one batch."""
    if runtime.compile != "none":
        say(f"compiling ({runtime.compile}); what can be kept of it is kept for the next run")
        try:
            compiled = _measuring(_compiled(voting, runtime.compile), runtime)
            compiled(blank(shape, runtime))
            return _recorded(compiled, voting, blank(shape, runtime)), runtime
        except Exception as error:
            if isinstance(error, RuntimeError) and _out_of_memory(error):
                raise
            cause = getattr(error, "inner_exception", error)  # what the compiler has wrapped
            warnings.warn(f"compilation failed, the classifier runs uncompiled: {first_line(cause)}", stacklevel=2)
            runtime = replace(runtime, compile="none")
    plain = _measuring(voting, runtime)
    plain(blank(shape, runtime))
    return _recorded(plain, voting, blank(shape, runtime)), runtime


def _compiled(voting: Voting, mode: str) -> Callable[[Tensor], Tensor]:
    """Compiled when first called, with the weights as constants."""
    from torch._dynamo import config as tracer  # takes a second
    from torch._inductor import config as compiler

    from smoothcert.sampler.fusion import FuseConvolutions

    # What is fused cannot be tuned, and the other way round.
    options: dict[str, Any] = {
        "default": {"post_grad_custom_post_pass": FuseConvolutions()},
        "max": {"max_autotune": True},
    }
    compiled: Callable[[Tensor], Tensor] = torch.compile(voting, dynamic=False, options=options[mode])

    # The tracer has to know of constants, too, so an option of the compiler is not enough. And every classifier is one
    # more compilation of the same code; beyond a limit they would silently not be compiled.
    def call(x: Tensor) -> Tensor:
        limits = tracer.patch(recompile_limit=_MOST_COMPILED, fail_on_recompile_limit_hit=True)
        with compiler.patch(freezing=True), limits:
            return compiled(x)

    return call


def _measuring(classify: Callable[[Tensor], Tensor], runtime: Runtime) -> Callable[[Tensor], Tensor]:
    """Kernels are chosen on the first batch, which every later one is shaped like."""
    if runtime.torch_device.type != "cuda":
        return classify

    def measured(x: Tensor) -> Tensor:
        with kernels_by_timing():
            return classify(x)

    return measured


def _recorded(classify: Callable[[Tensor], Tensor], voting: Voting, x: Tensor) -> Callable[[Tensor], Tensor]:
    """`classify`, which is `voting` in some form, for batches like `x`: on CUDA a recording, where that is possible."""
    if x.device.type != "cuda" or not isinstance(voting.module, nn.Module):  # functions do what they like on the host
        return classify
    try:
        with torch.cuda.device(x.device):
            recording = record(lambda: classify(x))
        expected = classify(tried := _noise_like(x))
    except RuntimeError as error:
        if _out_of_memory(error):
            raise
        log.info("the classifier cannot be recorded as a CUDA graph: %s", error)
        return classify
    taken, done = Lock(), torch.cuda.Event()  # type: ignore[no-untyped-call]

    def replayed(batch: Tensor) -> Tensor:
        with taken:  # `x` and the result are the recording's own, whoever calls, on whatever stream
            stream = torch.cuda.current_stream(x.device)
            stream.wait_event(done)
            x.copy_(batch)
            recording.replay()
            votes = recording.result.clone()
            done.record(stream)
            return votes

    recording.result.fill_(-1)  # if a replay wrote nothing, it shows
    if not torch.equal(replayed(tried), expected):
        log.info("the classifier answers otherwise when recorded as a CUDA graph")
        return classify
    return replayed


@torch.inference_mode(False)  # as `blank`
def _noise_like(x: Tensor) -> Tensor:
    """Far enough out to get various answers from most classifiers."""
    return torch.empty_like(x).normal_(std=4, generator=torch.Generator(x.device).manual_seed(0))


def place(module: Callable[[Tensor], Tensor], runtime: Runtime, shape: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    """The module on its device, in its number format; a copy, so that the caller's stays as it is."""
    if not isinstance(module, nn.Module):
        return module
    module = copy.deepcopy(module).to(runtime.torch_device, runtime.torch_dtype)
    placed: nn.Module = module.to(memory_format=runtime.memory_format(shape))  # type: ignore[call-overload]
    return placed


def _best_batch(voting: Voting, shape: tuple[int, ...], runtime: Runtime) -> int:
    """Double the batch while that makes a row cheaper by 3% and it fits; what does not fit is halved later.

    Two sizes are timed in turns, so that whatever else keeps the machine busy slows both.
    """
    batch, largest = _SMALLEST_BATCH, _LARGEST_BATCH[runtime.torch_device.type]
    try:
        if 2 * _seconds(voting, blank(shape, runtime, batch), times=1) > _LONGEST_BATCH:
            return batch
        while 2 * batch <= largest:
            small, large = blank(shape, runtime, batch), blank(shape, runtime, 2 * batch)
            once = twice = math.inf
            patience = time.perf_counter() + _PATIENCE
            for _ in range(_TURNS):
                once, twice = min(once, _seconds(voting, small)), min(twice, _seconds(voting, large))
                if time.perf_counter() > patience:
                    break
            if twice > min(0.97 * 2 * once, _LONGEST_BATCH):
                break
            batch *= 2
    except RuntimeError as error:
        if not _out_of_memory(error):
            raise
    return batch


def _seconds(voting: Voting, x: Tensor, times: int = 2) -> float:
    """The fastest of several passes, after one that loads kernels and claims memory."""
    voting(x)
    synchronize(x.device)
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        voting(x)
        synchronize(x.device)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def _out_of_memory(error: RuntimeError) -> bool:
    """Also of the host, for which torch has no error of its own, and within the compiler, which wraps errors."""
    said = ("can't allocate memory", "out of memory")
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in said)
