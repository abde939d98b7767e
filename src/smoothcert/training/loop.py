"""The training loop: from the first epoch, or from the last checkpoint, to the weights."""

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
from smoothcert.device.cuda_graph import cudnn_benchmark
from smoothcert.device.memory import keep_freed_memory
from smoothcert.device.runtime import Runtime
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.training.data import DeviceData
from smoothcert.training.folder import Folder
from smoothcert.training.methods.base import noisy_copies
from smoothcert.training.recipe import Recipe
from smoothcert.training.step import Step, compile_blocks, momentum_buffers, sgd

_CUDA_VALIDATION_BATCH = 4_096
_MAX_COMPILED_BLOCKS = 64  # residual blocks of different shapes, counted separately for training and evaluation


@dataclass(frozen=True)
class Epoch:
    """The result of one epoch.

    Args:
        number: The number of the epoch, from 1 on.
        loss: The mean training loss.
        train_accuracy: The accuracy on the noisy training inputs, each measured when the epoch reached it.
        accuracy: The accuracy on the validation inputs at the end of the epoch, with one noise sample per input.
        images_per_second: The speed of the training.
    """

    number: int
    loss: float
    train_accuracy: float
    accuracy: float
    images_per_second: float


@dataclass(frozen=True)
class Trained:
    """A finished training run.

    Args:
        weights: The file with the weights.
        accuracy: The accuracy on noisy validation inputs.
        epochs_now: How many epochs this call has trained; 0 if the run was already complete.
    """

    weights: Path
    accuracy: float
    epochs_now: int


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
    """Train a bundled architecture for smoothing and save its weights in `out/weights.safetensors`.

    After an interruption, the same call continues after the last complete epoch. On a CPU, it ends with the same
    weights as an uninterrupted run, because all randomness depends only on the seed and the number of the epoch. On
    CUDA, training uses bfloat16, the compiler and a CUDA graph by default.

    Args:
        recipe: How to train.
        training: The data to train on. Every input needs a label.
        validation: The data to measure the accuracy on after each epoch.
        out: The folder for checkpoints and weights.
        device: "cpu", "cuda", "cuda:N" or "mps". "auto" takes the fastest device.
        dtype: "float32" or "bfloat16". "auto" takes bfloat16 on CUDA.
        compile: "none" or "default". "auto" compiles on CUDA.
        on_step: Called after each step with the number of inputs of the step.
        on_epoch: Called after each epoch with its result.

    Raises:
        InvalidInput: A setting is invalid, the data does not fit the architecture, or `out` holds a training run with
            other settings.
    """
    runtime = Runtime.resolve(device, dtype, compile)
    if compile == "auto" and runtime.compile == "fast":  # the fast path has no gradients
        runtime = replace(runtime, compile="default")
    if dtype == "auto" and runtime.torch_device.type != "cuda":  # all CPUs should train the same weights
        runtime = replace(runtime, dtype="float32")
    _check.one_of("dtype", runtime.dtype, ("float32", "bfloat16"))
    _check.one_of("compile", runtime.compile, ("none", "default"))
    settings = recipe.settings() | {"dtype": runtime.dtype, "data": training.name, "fingerprint": training.fingerprint}
    _check_classes(training, validation)
    with exclusive(out) as path:
        folder = Folder(path)
        epochs_done = folder.open(settings)
        if epochs_done == recipe.epochs and (metadata := folder.weights_metadata()):
            return Trained(folder.weights, float(metadata["accuracy"]), 0)
        folder.check_writable()

        keep_freed_memory(runtime.torch_device)
        training_data = DeviceData.from_dataset(training, runtime.torch_device)
        validation_data = DeviceData.from_dataset(validation, runtime.torch_device)
        _check_data(recipe, training_data, validation_data)
        classes = max(len(training.class_names or ()), int(training_data.labels.max()) + 1, 2)
        with _training_context(runtime):
            _seed(recipe, 0)
            run = _Run(recipe, runtime, training_data, validation_data, classes)
            if epochs_done:
                folder.load_checkpoint(run.tensors)
            run.prepare(runtime)
            accuracy = run.accuracy() if epochs_done == recipe.epochs else math.nan
            for number in range(epochs_done, recipe.epochs):
                _seed(recipe, number + 1)
                epoch = run.epoch(number, on_step)
                accuracy = epoch.accuracy
                folder.save_checkpoint(run.tensors, settings, number + 1)
                on_epoch(epoch)
        metadata = settings | {"classes": classes, "accuracy": f"{accuracy:.4f}"}
        folder.save_weights(run.module.network.state_dict(), metadata)
        return Trained(folder.weights, accuracy, recipe.epochs - epochs_done)


class _Run:
    """The network, the optimizer and the data while they train."""

    def __init__(
        self, recipe: Recipe, runtime: Runtime, training: DeviceData, validation: DeviceData, classes: int
    ) -> None:
        self.recipe = recipe
        self.training = training
        self.validation = validation
        self.module = build(recipe.architecture, classes=classes, channels=_channels(recipe))
        self.module.to(runtime.torch_device, memory_format=runtime.memory_format(training.shape))  # type: ignore[call-overload]
        # Validation uses other batch sizes and the evaluation mode, so it has an uncompiled copy of the network.
        self.validator = copy.deepcopy(self.module).eval()
        self.optimizer = sgd(self.module, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
        self.autocast: Callable[[], AbstractContextManager[object]] = partial(
            torch.autocast, runtime.torch_device.type, dtype=torch.bfloat16, enabled=runtime.dtype == "bfloat16"
        )
        self.step = Step(
            self.module, self.optimizer, recipe.method, training, batch=recipe.batch, autocast=self.autocast
        )

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, by name. The schedule and the randomness depend only on the epoch."""
        names = [name for name, _ in self.module.named_parameters()]
        momentum = zip(names, momentum_buffers(self.optimizer), strict=True)
        return self.module.state_dict() | {f"momentum.{name}": buffer for name, buffer in momentum}

    def prepare(self, runtime: Runtime) -> None:
        """Compile the network and capture the step where the runtime asks for it."""
        try:
            if runtime.compile == "default":
                compile_blocks(self.module)
            if runtime.torch_device.type == "cuda":
                self.step.capture()
        except torch.OutOfMemoryError:
            raise InvalidInput(
                f"a batch of {self.recipe.batch} does not fit into the memory of {runtime.device}: give a smaller "
                f"batch, such as batch={max(self.recipe.batch // 2, 1)}"
            ) from None

    def epoch(self, number: int, on_step: Callable[[int], None]) -> Epoch:
        """Train one epoch; `number` counts from 0."""
        start = time.perf_counter()
        recipe, batch = self.recipe, self.recipe.batch
        order = torch.randperm(len(self.training), device=self.training.labels.device)
        batches = len(order) // batch  # the inputs of the last, incomplete batch are left out in this epoch
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
                f"the loss is not a finite number in epoch {number + 1}: the learning rate {recipe.learning_rate:g} is "
                "too high; give a lower learning_rate= and another out=DIR"
            )
        return Epoch(number + 1, loss, train_accuracy, self.accuracy(), batches * batch / seconds)

    @torch.no_grad()
    def accuracy(self) -> float:
        """The accuracy on the validation inputs, with one noise sample per input that is the same in every epoch."""
        _seed(self.recipe, self.recipe.epochs + 1)
        self.validator.load_state_dict(self.module.state_dict())
        device = self.validation.labels.device
        correct = torch.zeros((), dtype=torch.long, device=device)
        # On CUDA, large batches are faster because launching a kernel takes longer than computing a row.
        batch = _CUDA_VALIDATION_BATCH if device.type == "cuda" else self.recipe.batch
        for index in torch.split(torch.arange(len(self.validation), device=device), batch):
            x = self.validation.batch(index)
            noisy = noisy_copies(x, 1, sigma=self.recipe.method.sigma, noise=_noise(self.recipe))[0]
            with self.autocast():
                logits = self.validator(noisy)
            correct += (logits.argmax(1) == self.validation.labels[index]).sum()
        return correct.item() / len(self.validation)


def _check_classes(training: Dataset, validation: Dataset) -> None:
    ours, theirs = training.class_names, validation.class_names
    if ours and theirs and ours != theirs:
        different = sorted(set(ours) ^ set(theirs))[:5]
        reason = f"only one of them has {', '.join(different)}" if different else "their order differs"
        raise InvalidInput(f"training and validation inputs must have the same classes: {reason}")


def _check_data(recipe: Recipe, training: DeviceData, validation: DeviceData) -> None:
    expected = ARCHITECTURES[recipe.architecture].input_shape
    for shape in (training.shape, validation.shape):
        if shape != expected:
            raise InvalidInput(f"{recipe.architecture} takes inputs of shape {expected}, the data has {shape}")
    if len(training) < recipe.batch:
        raise InvalidInput(
            f"a batch of {recipe.batch} needs as many inputs, the data has {len(training)}: give a smaller batch="
        )


def _noise(recipe: Recipe) -> Noise | None:
    """The noise of the method; None for Gaussian noise."""
    return getattr(recipe.method, "noise", None)


def _channels(recipe: Recipe) -> int:
    """The channels that the network gets: a noise may mark absent pixels in further ones."""
    shape: tuple[int, ...] = ARCHITECTURES[recipe.architecture].input_shape
    noise = _noise(recipe)
    return (shape if noise is None else noise.draw.output_shape(shape))[0]


def _seed(recipe: Recipe, stream: int) -> None:
    """Seed torch: stream 0 is for the first weights, stream e for epoch e, and the last one for validation."""
    state = np.random.SeedSequence([recipe.seed, stream]).generate_state(1, np.uint64)
    torch.manual_seed(int(state[0] >> 1))


@contextmanager
def _training_context(runtime: Runtime) -> Iterator[None]:
    """Set torch up for training; afterwards, restore the random state and the settings of the caller."""
    device = runtime.torch_device
    with ExitStack() as stack:
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
            stack.enter_context(cudnn_benchmark())
        stack.enter_context(torch.random.fork_rng([torch.cuda.current_device()] if device.type == "cuda" else []))
        if runtime.compile != "none":
            from torch._dynamo import config as dynamo_config  # this import takes a second

            stack.enter_context(dynamo_config.patch(recompile_limit=_MAX_COMPILED_BLOCKS))
        yield
