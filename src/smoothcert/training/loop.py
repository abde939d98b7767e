"""Training from the first epoch, or the last checkpoint, to the weights."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from smoothcert import _check
from smoothcert._files import exclusive
from smoothcert.classifiers.architectures import ARCHITECTURES, build
from smoothcert.datasets.base import Dataset
from smoothcert.errors import InvalidInput
from smoothcert.recording import kernels_by_timing
from smoothcert.sampler.runtime import Runtime, keep_freed_memory
from smoothcert.training.checkpoint import Folder
from smoothcert.training.data import HeldData
from smoothcert.training.recipe import Recipe
from smoothcert.training.step import Step, compile_blocks, momenta, sgd

_ROWS_ON_CUDA = 4_096  # of a validation batch
_MOST_BLOCKS = 64  # kinds of residual block, in training and in evaluation, that are compiled


@dataclass(frozen=True)
class Epoch:
    """How an epoch went."""

    number: int
    """From 1 on."""
    loss: float
    train_accuracy: float
    """On the noisy inputs trained on, as the weights were at each step."""
    accuracy: float
    """On validation inputs, one draw of noise each, at the epoch's end."""
    images_per_second: float


@dataclass(frozen=True)
class Trained:
    """A finished training run."""

    weights: Path
    accuracy: float
    """On noisy validation inputs."""
    epochs_now: int
    """How many epochs this call has trained: 0 where the run was complete already."""


def train(
    recipe: Recipe,
    training: Dataset,
    validation: Dataset,
    *,
    out: str | Path,
    device: str = "auto",
    dtype: str = "auto",
    compile: str = "auto",
    on_step: Callable[[int], None] = lambda images: None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Trained:
    """Train a bundled architecture for smoothing; the weights and their description go to `out/weights.safetensors`.

    Interrupted, the same call goes on after the last whole epoch, on a CPU to the same weights. Randomness depends on
    the recipe's seed and the epoch alone. On CUDA the network runs in bfloat16, compiled, in a recorded step.
    """
    runtime = Runtime.resolve(device, dtype, compile)
    if dtype == "auto" and runtime.torch_device.type != "cuda":  # weights are the same on every CPU
        runtime = replace(runtime, dtype="float32")
    _check.one_of("dtype", runtime.dtype, ("float32", "bfloat16"))
    _check.one_of("compile", runtime.compile, ("none", "default"))
    settings = recipe.settings() | {"dtype": runtime.dtype, "data": training.name, "fingerprint": training.fingerprint}
    named, judged_by = training.class_names, validation.class_names
    if named and judged_by and named != judged_by:
        odd = sorted(set(named) ^ set(judged_by))[:5] or ["another order"]
        raise InvalidInput(f"training and validation inputs must be of the same classes: one has {', '.join(odd)}")
    with exclusive(out) as path:
        folder = Folder(path)
        done = folder.open(settings)
        if done == recipe.epochs and (about := folder.about_weights()):
            return Trained(folder.weights, float(about["accuracy"]), 0)
        folder.check_writable()

        keep_freed_memory(runtime.torch_device)
        held = HeldData.hold(training, runtime.torch_device)
        judged = HeldData.hold(validation, runtime.torch_device)
        _check_data(recipe, held, judged)
        classes = max(len(training.class_names or ()), int(held.labels.max()) + 1, 2)
        with _surroundings(runtime):
            _seed(recipe, 0)
            run = _Run(recipe, runtime, held, judged, classes)
            if done:
                folder.load_checkpoint(run.tensors)
            run.prepare(runtime)
            accuracy = run.accuracy() if done == recipe.epochs else math.nan
            for number in range(done, recipe.epochs):
                _seed(recipe, number + 1)
                epoch = run.epoch(number, on_step)
                accuracy = epoch.accuracy
                folder.save_checkpoint(run.tensors, settings, number + 1)
                on_epoch(epoch)
        about = settings | {"classes": classes, "accuracy": f"{accuracy:.4f}"}
        folder.save_weights(run.module.network.state_dict(), about)
        return Trained(folder.weights, accuracy, recipe.epochs - done)


class _Run:
    """What is alive while training."""

    def __init__(self, recipe: Recipe, runtime: Runtime, held: HeldData, judged: HeldData, classes: int) -> None:
        self.recipe = recipe
        self.held = held
        self.judged = judged
        self.module = build(recipe.architecture, classes=classes)
        self.module.to(runtime.torch_device, memory_format=runtime.memory_format(held.shape))  # type: ignore[call-overload]
        self.judge = copy.deepcopy(self.module).eval()  # stays uncompiled: it sees other shapes and modes
        self.optimizer = sgd(self.module, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
        self.autocast: Callable[[], AbstractContextManager[object]] = partial(
            torch.autocast, runtime.torch_device.type, dtype=torch.bfloat16, enabled=runtime.dtype == "bfloat16"
        )
        self.step = Step(self.module, self.optimizer, recipe.method, held, batch=recipe.batch, autocast=self.autocast)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """All that changes in training, by name. The schedule and the randomness follow from the epoch's number."""
        names = [name for name, _ in self.module.named_parameters()]
        momentum = zip(names, momenta(self.optimizer), strict=True)
        return self.module.state_dict() | {f"momentum.{name}": buffer for name, buffer in momentum}

    def prepare(self, runtime: Runtime) -> None:
        try:
            if runtime.compile == "default":
                compile_blocks(self.module)
            if runtime.torch_device.type == "cuda":
                self.step.capture()
        except torch.OutOfMemoryError:
            raise InvalidInput(
                f"a batch of {self.recipe.batch} does not fit into the memory of {runtime.device}; give a smaller one, "
                f"such as {max(self.recipe.batch // 2, 1)}"
            ) from None

    def epoch(self, number: int, on_step: Callable[[int], None]) -> Epoch:
        start = time.perf_counter()
        recipe, batch = self.recipe, self.recipe.batch
        order = torch.randperm(len(self.held), device=self.held.labels.device)
        batches = len(order) // batch  # what does not fill a batch has its chance in the next epoch
        self.step.epoch.fill_(number)
        self.step.totals.zero_()
        for index in range(batches):
            rate = recipe.rate((number + index / batches) / recipe.epochs)
            self.step(order[index * batch : (index + 1) * batch], rate)
            on_step(batch)
        loss, train_accuracy = (self.step.totals / batches).tolist()
        seconds = time.perf_counter() - start
        if not math.isfinite(loss):
            raise InvalidInput(
                f"the loss is no longer a finite number in epoch {number + 1}: a learning rate of "
                f"{recipe.learning_rate:g} is too high; give a lower --lr and another --out"
            )
        return Epoch(number + 1, loss, train_accuracy, self.accuracy(), batches * batch / seconds)

    @torch.no_grad()
    def accuracy(self) -> float:
        """The share of validation inputs that the network gets right, under one draw of noise each, always the same."""
        _seed(self.recipe, self.recipe.epochs + 1)
        self.judge.load_state_dict(self.module.state_dict())
        device = self.judged.labels.device
        correct = torch.zeros((), dtype=torch.long, device=device)
        rows = _ROWS_ON_CUDA if device.type == "cuda" else self.recipe.batch  # there, launches cost more than rows
        for index in torch.split(torch.arange(len(self.judged), device=device), rows):
            x = self.judged.batch(index)
            with self.autocast():
                logits = self.judge(x + self.recipe.method.sigma * torch.randn_like(x))
            correct += (logits.argmax(1) == self.judged.labels[index]).sum()
        return correct.item() / len(self.judged)


def _check_data(recipe: Recipe, held: HeldData, judged: HeldData) -> None:
    expected = ARCHITECTURES[recipe.architecture].input_shape
    for shape in (held.shape, judged.shape):
        if shape != expected:
            raise InvalidInput(f"{recipe.architecture} takes inputs of shape {expected}, the data has {shape}")
    if len(held) < recipe.batch:
        raise InvalidInput(
            f"a batch of {recipe.batch} needs as many inputs, the data has {len(held)}: give a smaller one"
        )


def _seed(recipe: Recipe, stream: int) -> None:
    """Stream 0 is for the first weights, e for epoch e, the last for validation: no epoch depends on those before."""
    state = np.random.SeedSequence([recipe.seed, stream]).generate_state(1, np.uint64)
    torch.manual_seed(int(state[0] >> 1))


@contextmanager
def _surroundings(runtime: Runtime) -> Iterator[None]:
    """The caller's random state and settings are the same afterwards."""
    device = runtime.torch_device
    with ExitStack() as stack:
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
            stack.enter_context(kernels_by_timing())
        stack.enter_context(torch.random.fork_rng([torch.cuda.current_device()] if device.type == "cuda" else []))
        if runtime.compile != "none":
            from torch._dynamo import config as tracer  # takes a second

            stack.enter_context(tracer.patch(recompile_limit=_MOST_BLOCKS))
        yield
