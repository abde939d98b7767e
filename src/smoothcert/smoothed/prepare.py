"""Prepare a classifier for a run: check it, move it to its device, compile it, capture it as a CUDA graph."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.device.comparison import check_labels
from smoothcert.device.cuda_graph import capture, cudnn_benchmark
from smoothcert.device.memory import is_out_of_memory, keep_freed_memory
from smoothcert.device.placement import place
from smoothcert.device.runtime import Compile, Runtime, blank
from smoothcert.device.setup_clock import SetupClock
from smoothcert.device.threads import let_threads_rest
from smoothcert.errors import InvalidInput, ModelFailed, SmoothcertError, first_line, is_our_own
from smoothcert.kernels.fast_path import FastClassifier, NotFast, build_fast
from smoothcert.models.check import check_classifier
from smoothcert.models.outputs import find_logits
from smoothcert.models.seeded import SeededRows
from smoothcert.noises import Draw
from smoothcert.smoothed.batch_size import batch_seconds, fastest_batch

log = logging.getLogger(__name__)

_MAX_COMPILED_CLASSIFIERS = 256  # in one process
_CHECKED_ROWS = 8
# Compiling takes up to a minute and makes a classifier up to a sixth faster than the fast path.
_SECONDS_WORTH_COMPILING = 600


class LabelClassifier(nn.Module):
    """Turns the output of a classifier into one class per row.

    A row with an output that is not finite gets the number `classes`, which is not a class: it is no vote.

    Args:
        module: The classifier: a batch of inputs to logits of shape (batch, classes) or to labels of shape (batch,),
            alone or in a form that `find_logits` takes.
        classes: The number of classes.
    """

    def __init__(self, module: Callable[[Tensor], Tensor], classes: int) -> None:
        super().__init__()
        self.module = module
        self.classes = classes

    def forward(self, x: Tensor) -> Tensor:
        """The class of each row, as integers of shape (batch,)."""
        output = find_logits(self.module(x), classes=self.classes, device=x.device)
        if tuple(output.shape) not in ((len(x),), (len(x), self.classes)):
            raise ModelFailed(
                f"the model returns shape {tuple(output.shape)} for {len(x)} inputs and {self.classes} classes"
            )
        if output.ndim == 1:
            return torch.where((output >= 0) & (output < self.classes), output.long(), self.classes)
        return torch.where(output.isfinite().all(1), output.argmax(1), self.classes)


def prepare(
    module: Callable[[Tensor], Tensor],
    classes: int,
    shape: tuple[int, ...],
    runtime: Runtime,
    say: Callable[[str], None] = lambda message: None,
    clock: SetupClock | None = None,
    *,
    draw: Draw | None = None,
) -> tuple[Callable[[Tensor], Tensor], Runtime]:
    """Prepare a classifier for batches of one fixed shape.

    Returns:
        A function from a batch to one class per row, and the runtime with the settings that are really used: the batch
        size is a number, and `compile` names what runs, which differs from what was asked for if that failed.

    Raises:
        InvalidInput: The classifier does not return logits or labels, or the batch does not fit into memory.
    """
    clock = clock or SetupClock()
    keep_freed_memory(runtime.torch_device)
    let_threads_rest(runtime.torch_device)
    if isinstance(module, nn.Module) and any(isinstance(part, SeededRows) for part in module.modules()):
        log.info("the classifier is random by design, so it runs with compile=none")
        runtime = replace(runtime, compile="none")
    with torch.inference_mode():
        with clock.step("check"):
            classifier = plain = LabelClassifier(place(module, runtime, shape), classes)
            sample = blank(shape, runtime, _CHECKED_ROWS)
            sample += torch.rand(sample.shape, generator=torch.Generator().manual_seed(0)).to(sample)
            check_classifier(classifier.module, classes, sample)
        fast, runtime = _try_fast_path(module, classifier, shape, runtime, say, clock, draw)
        if fast is not None:
            classifier = LabelClassifier(fast.outputs, classes)
        if measured := not runtime.batch:
            say("choosing the batch size")
            with clock.step("batch"):
                if fast and fast.stages:
                    batch = fast.stages.best_batch()
                else:
                    batch = fastest_batch(_naming_errors(classifier), shape, runtime)
            runtime = replace(runtime, batch=batch)
        while True:
            try:
                if fast and fast.stages:
                    fast.stages(blank(shape, runtime))  # the batch must fit into memory
                    return fast.stages, runtime
                with clock.step("compile"):
                    prepared = _compile_and_capture(classifier, shape, runtime, say)
                    if runtime.work and runtime.compile == "fast" and runtime.torch_device.type == "cuda":
                        return _faster(prepared, plain, shape, say)
                    return prepared
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                if not measured or runtime.batch == 1:
                    raise InvalidInput(
                        f"a batch of {runtime.batch} does not fit into the memory of {runtime.device}; use "
                        'batch="auto" or a smaller batch'
                    ) from None
                runtime = replace(runtime, batch=runtime.batch // 2)


def _try_fast_path(
    module: Callable[[Tensor], Tensor],
    classifier: LabelClassifier,
    shape: tuple[int, ...],
    runtime: Runtime,
    say: Callable[[str], None],
    clock: SetupClock,
    draw: Draw | None,
) -> tuple[FastClassifier | None, Runtime]:
    """The fast form of a classifier if the runtime asks for it; otherwise, the runtime says what to use instead."""
    if runtime.compile not in ("fast", "stages"):
        return None, runtime
    try:
        if not isinstance(module, nn.Module):
            raise NotFast("it is a function")
        if not isinstance(classifier.module(blank(shape, runtime, _CHECKED_ROWS)), Tensor):
            raise NotFast("it returns something else than a tensor")
        fast = build_fast(module, classifier.module, shape, runtime, say, clock, draw=draw)
        return fast, replace(runtime, compile=fast.compile)
    except InvalidInput:
        raise
    except Exception as error:  # networks of any kind come here
        reason = first_line(error)
    instead: Compile = "default" if runtime.torch_device.type == "cuda" else "none"
    log.info("the classifier runs with compile=%s, not with %s: %s", instead, runtime.compile, reason)
    return None, replace(runtime, compile=instead)


def _compile_and_capture(
    classifier: LabelClassifier, shape: tuple[int, ...], runtime: Runtime, say: Callable[[str], None]
) -> tuple[Callable[[Tensor], Tensor], Runtime]:
    """Compile and capture the classifier where the runtime asks for it, and try the result on one batch."""
    if runtime.compile in ("default", "max"):
        say(f"compiling ({runtime.compile}); the result is cached for the next run")
        try:
            compiled = _with_cudnn_benchmark(_compiled(classifier, runtime.compile), runtime)
            compiled(blank(shape, runtime))
            check_labels(compiled, classifier, shape, runtime)
            return _naming_errors(_captured(compiled, classifier, blank(shape, runtime))), runtime
        except Exception as error:
            if is_out_of_memory(error):
                raise
            cause = getattr(error, "inner_exception", error)  # the compiler wraps the original error
            warnings.warn(f"compilation failed, the classifier runs uncompiled: {first_line(cause)}", stacklevel=2)
            runtime = replace(runtime, compile="none")
    uncompiled = _naming_errors(_with_cudnn_benchmark(classifier, runtime))
    uncompiled(blank(shape, runtime))
    return _captured(uncompiled, classifier, blank(shape, runtime)), runtime


def _faster(
    fast: tuple[Callable[[Tensor], Tensor], Runtime],
    plain: LabelClassifier,
    shape: tuple[int, ...],
    say: Callable[[str], None],
) -> tuple[Callable[[Tensor], Tensor], Runtime]:
    """The faster one of the fast path and the compiled classifier. A short run is not worth compiling."""
    classify, runtime = fast
    batch = blank(shape, runtime)
    seconds = batch_seconds(classify, batch)
    if seconds * runtime.work / runtime.batch < _SECONDS_WORTH_COMPILING:
        return fast
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a compilation that fails does no harm here
            compiled, how = _compile_and_capture(plain, shape, replace(runtime, compile="default"), say)
            compiled_seconds = batch_seconds(compiled, batch)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return fast
    log.info("a batch takes %.1f ms on the fast path, %.1f ms compiled", 1e3 * seconds, 1e3 * compiled_seconds)
    return fast if how.compile == "none" or seconds <= compiled_seconds else (compiled, how)


def _compiled(classifier: LabelClassifier, mode: str) -> Callable[[Tensor], Tensor]:
    """The classifier, compiled at its first call with the weights as constants."""
    from torch._dynamo import config as dynamo_config  # this import takes a second
    from torch._inductor import config as inductor_config

    from smoothcert.kernels.fusion import FuseConvolutions

    # Autotuning does not cover the fused operation, so each mode uses one or the other.
    options: dict[str, Any] = {
        "default": {"post_grad_custom_post_pass": FuseConvolutions()},
        "max": {"max_autotune": True},
    }
    compiled: Callable[[Tensor], Tensor] = torch.compile(classifier, dynamic=False, options=options[mode])

    # `freezing` must also be set while the code is traced, so it cannot be an option of torch.compile. Every classifier
    # counts as a recompilation of the same code. Beyond torch's limit, it would silently run uncompiled.
    def call(x: Tensor) -> Tensor:
        limit = dynamo_config.patch(recompile_limit=_MAX_COMPILED_CLASSIFIERS, fail_on_recompile_limit_hit=True)
        with inductor_config.patch(freezing=True), limit:
            return compiled(x)

    return call


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
            raise ModelFailed(f"the model fails with {type(error).__name__}: {first_line(error)}") from error

    return call


def _with_cudnn_benchmark(classify: Callable[[Tensor], Tensor], runtime: Runtime) -> Callable[[Tensor], Tensor]:
    """On CUDA, let cuDNN choose kernels on the first batch. All later batches have the same shape."""
    if runtime.torch_device.type != "cuda":
        return classify

    def call(x: Tensor) -> Tensor:
        with cudnn_benchmark():
            return classify(x)

    return call


def _captured(
    classify: Callable[[Tensor], Tensor], classifier: LabelClassifier, x: Tensor
) -> Callable[[Tensor], Tensor]:
    """`classify`, a form of `classifier`, as a CUDA graph for batches like `x`; unchanged where that is impossible."""
    # A function may run Python code on every call, and a graph would skip that code. A random classifier does so.
    if (
        x.device.type != "cuda"
        or not isinstance(classifier.module, nn.Module)
        or isinstance(classifier.module, SeededRows)
    ):
        return classify
    try:
        with torch.cuda.device(x.device):
            graph = capture(lambda: classify(x))
        expected = classify((test_batch := _random_batch_like(x)).clone())  # some classifiers change their inputs
    except (RuntimeError, ModelFailed) as error:
        if is_out_of_memory(error):
            raise
        log.info("the classifier cannot be captured as a CUDA graph: %s", error)
        return classify
    lock, finished = Lock(), torch.cuda.Event()  # type: ignore[no-untyped-call]

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
    if not torch.equal(replay(test_batch), expected):
        log.info("the classifier gives other answers when it is captured as a CUDA graph, so it runs without one")
        return classify
    return replay


@torch.inference_mode(False)  # for the same reason as `blank`
def _random_batch_like(x: Tensor) -> Tensor:
    """Strong noise, which makes most classifiers answer with several classes."""
    return torch.empty_like(x).normal_(std=4, generator=torch.Generator(x.device).manual_seed(0))
