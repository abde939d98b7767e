"""torch's own ways to run a network faster: its compiler, and CUDA graphs.

A small network consists of hundreds of GPU kernels, and most of them take hardly longer than their
launch. A CUDA graph captures a fixed sequence of kernels once, and a replay launches all of them at
once.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from smoothcert._agreement import Outputs, differing_labels
from smoothcert.device.runtime import is_out_of_memory
from smoothcert.errors import ModelFailed

log = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_COMPILED_CLASSIFIERS = 256
"""In one process."""
_WARM_UP_RUNS = 3
"""The first runs compile code, choose kernels and allocate memory, which a capture must not do."""
_STRONG_DEVIATION = 4.0


def compiled(classifier: nn.Module, *, tune: bool) -> Outputs:
    """The classifier, compiled at its first call with its weights as constants.

    Args:
        classifier: The classifier.
        tune: Whether to choose kernels by timing them.
    """
    from torch._dynamo import config as dynamo_config  # this import takes a second
    from torch._inductor import config as inductor_config

    compiled_form: Outputs = torch.compile(
        classifier, dynamic=False, options={"max_autotune": tune}
    )

    # `freezing` must also be set while the code is traced, so it cannot be an option of
    # torch.compile. Every classifier counts as a recompilation of the same code. Beyond torch's
    # limit, it would silently run uncompiled.
    def call(x: Tensor) -> Tensor:
        limit = dynamo_config.patch(
            recompile_limit=_MAX_COMPILED_CLASSIFIERS, fail_on_recompile_limit_hit=True
        )
        with inductor_config.patch(freezing=True), limit:
            return compiled_form(x)

    return call


@dataclass(frozen=True)
class CapturedGraph(Generic[T]):
    """Work that was captured as a CUDA graph.

    Args:
        replay: Runs the work again.
        result: What the work returned. Every replay overwrites these tensors.
        work: The captured function. A replay reads the function's tensors, such as weights, at the
            addresses that they had during the capture, so the graph must keep them alive.
    """

    replay: Callable[[], None]
    result: T
    work: Callable[[], T]


def capture(work: Callable[[], T]) -> CapturedGraph[T]:
    """Capture `work` as a CUDA graph on the current device.

    Raises:
        RuntimeError: CUDA cannot capture the work, for example because it waits for the device.
    """
    stream = torch.cuda.current_stream()
    side_stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side_stream.wait_stream(stream)
    try:
        with torch.cuda.stream(side_stream):
            for _ in range(_WARM_UP_RUNS):
                work()
            with _synchronization_is_an_error():  # it would invalidate the graph
                work()
    finally:
        stream.wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with (
        torch.cuda.stream(stream),  # restores the current stream if the capture fails
        torch.cuda.graph(graph, stream=side_stream, capture_error_mode="thread_local"),
    ):
        result = work()
    return CapturedGraph(graph.replay, result, work)


def captured(
    classify: Outputs,
    x: Tensor,
    *,
    capture: Callable[[Callable[[], Tensor]], CapturedGraph[Tensor]] = capture,
) -> Outputs:
    """A classifier as a CUDA graph for batches like `x`.

    The classifier is returned unchanged if it cannot be captured, or if the graph gives other
    labels.

    Args:
        classify: From a batch to one class per row.
        x: A batch. The graph keeps it as the memory of its inputs.
        capture: Captures a function as a graph.
    """
    try:
        with torch.cuda.device(x.device):
            graph = capture(lambda: classify(x))
        test_batch = _strong_noise_like(x)
        expected = classify(test_batch.clone())  # some classifiers change their inputs
    except (RuntimeError, ModelFailed) as error:
        if is_out_of_memory(error):
            raise
        log.info("the classifier cannot be captured as a CUDA graph: %s", error)
        return classify
    lock = Lock()
    finished = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def replay(batch: Tensor) -> Tensor:
        with lock:  # all threads and streams share the tensors `x` and `graph.result`
            stream = torch.cuda.current_stream(x.device)
            stream.wait_event(finished)
            x.copy_(batch)
            graph.replay()
            labels = graph.result.clone()
            finished.record(stream)
            return labels

    graph.result.fill_(-1)  # a replay that writes nothing fails the comparison below
    if differing_labels(replay(test_batch), expected):  # the kernels are the same
        log.info("as a CUDA graph, the classifier gives other answers, so it runs without one")
        return classify
    return replay


@torch.inference_mode(False)  # for the same reason as `blank`
def _strong_noise_like(x: Tensor) -> Tensor:
    """Strong noise, which makes most classifiers answer with several classes."""
    generator = torch.Generator(x.device).manual_seed(0)
    return torch.empty_like(x).normal_(std=_STRONG_DEVIATION, generator=generator)


@contextmanager
def cudnn_benchmark() -> Iterator[None]:
    """Let cuDNN time its convolution kernels on first use, and restore the caller's setting."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@contextmanager
def _synchronization_is_an_error() -> Iterator[None]:
    """Make torch raise a RuntimeError when code waits for the device."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        # torch warns that this mode does not detect every synchronization.
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)
