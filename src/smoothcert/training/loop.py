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
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothcert import _check
from smoothcert._files import exclusive
from smoothcert.data.base import Dataset
from smoothcert.device.cuda_graph import cudnn_benchmark
from smoothcert.device.memory import keep_freed_memory
from smoothcert.device.runtime import Runtime
from smoothcert.errors import InvalidInput, setting
from smoothcert.models.architectures import Normalized
from smoothcert.models.base import Classifier
from smoothcert.models.denoisers import Denoiser
from smoothcert.models.identity import state_hash
from smoothcert.training.check import (
    check_data,
    check_examples,
    check_networks,
    check_same_classes,
    check_sizes,
    with_classes,
)
from smoothcert.training.data import DeviceData
from smoothcert.training.folder import BUFFER, Folder
from smoothcert.training.identity import network_answers
from smoothcert.training.optimizers import RunningMean, state_tensors
from smoothcert.training.recipe import Recipe
from smoothcert.training.step import Step, compile_blocks
from smoothcert.training.trainee import Start, Trainee

_CUDA_VALIDATION_NUMBERS = 4_096 * 3 * 32 * 32  # in the inputs of one batch
_SECONDS_BETWEEN_CHECKPOINTS = 3.0  # shorter epochs go without one, and without validation
_MAX_COMPILED_BLOCKS = 64  # residual blocks of different shapes, counted separately for training and evaluation


@dataclass(frozen=True)
class Epoch:
    """The result of one epoch. A classifier has an accuracy, a denoiser has a peak signal-to-noise ratio (PSNR).

    Args:
        number: The number of the epoch, from 1 on.
        loss: The mean training loss.
        images_per_second: The speed of the training.
        train_accuracy: The accuracy on the noisy training inputs, each measured when the epoch reached it.
        accuracy: The accuracy on the validation inputs at the end of the epoch, with one noise sample per input.
        train_psnr: The mean PSNR of the denoised training inputs in dB, each measured when the epoch reached it.
        psnr: The mean PSNR of the denoised validation inputs in dB at the end of the epoch.
    """

    number: int
    loss: float
    images_per_second: float
    train_accuracy: float | None = None
    accuracy: float | None = None
    train_psnr: float | None = None
    psnr: float | None = None


@dataclass(frozen=True)
class Trained:
    """A finished training run.

    Args:
        weights: The file with the weights.
        epochs_now: How many epochs this call has trained; 0 if the run was already complete.
        accuracy: The accuracy on noisy validation inputs, of a classifier.
        psnr: The mean PSNR of denoised validation inputs in dB, of a denoiser.
    """

    weights: Path
    epochs_now: int
    accuracy: float | None = None
    psnr: float | None = None


def train(
    recipe: Recipe,
    training: Dataset,
    validation: Dataset,
    *,
    out: str | Path,
    classifier: Classifier | None = None,
    denoiser: Denoiser | None = None,
    device: str = "auto",
    dtype: str = "auto",
    compile: str = "auto",
    on_step: Callable[[int], None] = lambda images: None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Trained:
    """Train a network for smoothing and save its weights in `out/weights.safetensors`.

    After an interruption, the same call continues after the last checkpoint, which is written after every epoch unless
    epochs take less than a few seconds. On a CPU, it ends with the same weights as an uninterrupted run, because all
    randomness depends only on the seed and the number of the epoch. On CUDA, training uses bfloat16, the compiler and a
    CUDA graph by default.

    Args:
        recipe: How to train.
        training: The data to train on. Every input needs a label, unless a denoiser is trained. Inputs of shape
            (3, height, width) are taken to be colour images: each is shifted by up to 4 pixels, and half are mirrored.
        validation: The data to measure the accuracy on after each epoch.
        out: The folder for checkpoints and weights.
        classifier: The classifier to start from; by default, it has random weights. Parameters that do not require a
            gradient stay frozen, unless this is so for all of them. If a denoiser is trained, the fixed classifier of
            its stability loss.
        denoiser: A fixed denoiser in front of the classifier. If a denoiser is trained, the one to start from.
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
    settings |= {} if classifier is None else {"classifier": classifier.weights_hash}
    settings |= {} if denoiser is None else {"denoiser": state_hash(denoiser)}
    labelled, measure = recipe.method.needs_labels, recipe.method.measure
    if labelled:
        check_same_classes(training, validation)
    answers = network_answers(recipe.method, training, classifier, denoiser)
    with exclusive(out, kind="training run") as path:
        folder = Folder(path, settings, answers)
        if (score := folder.score(measure)) is not None:
            return Trained(folder.weights, 0, **{measure: score})
        epochs_done = folder.epochs_done()
        keep_freed_memory(runtime.torch_device)
        training_data = DeviceData.from_dataset(training, runtime.torch_device, labelled=labelled)
        validation_data = DeviceData.from_dataset(validation, runtime.torch_device, labelled=labelled)
        check_sizes(recipe.batch, training_data, validation_data)
        classes = max(len(training.class_names or ()), int(training_data.labels.max()) + 1, 2)
        if classifier is not None:
            classifier = with_classes(classifier, recipe.method, training_data.shape, classes)
        if labelled:
            check_examples(training, training_data, validation_data, classes, classifier)
        start = Start(recipe.architecture, training_data.shape, classes, classifier, denoiser)
        with _training_context(runtime):
            _seed(recipe, 0)
            trainee = recipe.method.trainee(start)
            check_data(recipe.method, trainee, training_data, training.name)
            check_data(recipe.method, trainee, validation_data, validation.name)
            run = _Run(recipe, runtime, training_data, validation_data, trainee)
            with run.autocast():
                check_networks(start, recipe.method, run.validator, training_data)
            if epochs_done:
                folder.load_checkpoint(run.tensors)
            run.prepare(runtime)
            score = run.score() if epochs_done == recipe.epochs else math.nan
            last = -math.inf
            for number in range(epochs_done, recipe.epochs):
                _seed(recipe, number + 1)
                trained = run.epoch(number, on_step)
                if time.perf_counter() < last + _SECONDS_BETWEEN_CHECKPOINTS and number + 1 < recipe.epochs:
                    continue
                score = run.score()
                folder.save_checkpoint(run.tensors, number + 1)
                scores: dict[str, Any] = {measure: score}
                on_epoch(replace(trained, **scores))
                last = time.perf_counter()
        folder.save_weights(run.result, run.validator.facts | {measure: f"{score:.4f}"})
        return Trained(folder.weights, recipe.epochs - epochs_done, **{measure: score})


class _Run:
    """The network, the optimizer and the data while they train."""

    def __init__(
        self, recipe: Recipe, runtime: Runtime, training: DeviceData, validation: DeviceData, trainee: Trainee
    ) -> None:
        self.recipe = recipe
        self.training = training
        self.validation = validation
        self.module, self.trained, _ = trainee
        self.module.to(runtime.torch_device, memory_format=runtime.memory_format(training.shape))  # type: ignore[call-overload]
        # Validation uses other batch sizes, the evaluation mode and, with some methods, the mean of the weights. So it
        # has an uncompiled copy of the network. After each epoch, this copy is what the training has achieved.
        self.validator = copy.deepcopy(trainee)
        self.validator.module.eval()
        self.mean = RunningMean(self.validator.module, self.module) if recipe.method.keeps_mean else None
        self.optimizer = recipe.method.optimizer(
            self.module, momentum=recipe.momentum, weight_decay=recipe.weight_decay
        )
        self.autocast: Callable[[], AbstractContextManager[object]] = partial(
            torch.autocast, runtime.torch_device.type, dtype=torch.bfloat16, enabled=runtime.dtype == "bfloat16"
        )
        self.step = Step(
            self.module,
            self.optimizer,
            recipe.method,
            training,
            batch=recipe.batch,
            autocast=self.autocast,
            mean=self.mean,
        )

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, by name. The schedule and the randomness depend only on the epoch."""
        mean = {} if self.mean is None else self.validator.trained.state_dict()
        state = self.trained.state_dict()
        return (
            state
            | {f"{BUFFER}{name}": tensor for name, tensor in self.trained.named_buffers() if name not in state}
            | state_tensors(self.optimizer, self.trained)
            | {f"mean.{name}": tensor for name, tensor in mean.items()}
        )

    @property
    def result(self) -> dict[str, Tensor]:
        """The weights that were validated last."""
        trained = self.validator.trained
        return (trained.network if isinstance(trained, Normalized) else trained).state_dict()

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
                f"batch, such as {setting('batch', max(self.recipe.batch // 2, 1))}"
            ) from None

    def epoch(self, number: int, on_step: Callable[[int], None]) -> Epoch:
        """Train one epoch; `number` counts from 0. The result has no score on validation inputs yet."""
        start = time.perf_counter()
        recipe, batch = self.recipe, self.recipe.batch
        order = torch.randperm(len(self.training), device=self.training.labels.device)
        batches = len(order) // batch  # the inputs of the last, incomplete batch are left out in this epoch
        self.step.epoch.fill_(number)
        self.step.totals.zero_()
        for index in range(batches):
            rate = recipe.rate((number + index / batches) / recipe.epochs)
            if self.mean is not None:
                self.mean.set_step(number * batches + index + 1)
            self.step(order[index * batch : (index + 1) * batch], rate)
            on_step(batch)
        loss, train_score = (self.step.totals / batches).tolist()
        seconds = time.perf_counter() - start
        if not math.isfinite(loss):
            raise _diverged(recipe, f"the loss is not a finite number in epoch {number + 1}")
        scores = {f"train_{recipe.method.measure}": train_score}
        return Epoch(number + 1, loss, batches * batch / seconds, **scores)

    @torch.no_grad()
    def score(self) -> float:
        """The mean score of the validation inputs, with one noise sample per input that is the same in every epoch."""
        _seed(self.recipe, self.recipe.epochs + 1)
        if self.mean is None:
            self.validator.trained.load_state_dict(self.trained.state_dict())
        method, device = self.recipe.method, self.validation.labels.device
        total = torch.zeros((), dtype=torch.double, device=device)
        numbers = torch.ones((), dtype=torch.bool, device=device)  # a logit may be -inf, but not NaN or inf
        # On CUDA, large batches are faster because launching a kernel takes longer than computing a row.
        fitting = max(_CUDA_VALIDATION_NUMBERS // math.prod(self.validation.shape), 1)
        batch = fitting if device.type == "cuda" else self.recipe.batch
        for index in torch.split(torch.arange(len(self.validation), device=device), batch):
            x = self.validation.batch(index)
            with self.autocast():
                outputs = method.outputs(self.validator.module, x)
            numbers &= (outputs < math.inf).all()
            total += method.score(outputs, x, self.validation.labels[index]).double().sum()
        if not numbers.item() or not math.isfinite(total.item()):
            raise _diverged(self.recipe, "the outputs for validation inputs are not finite numbers")
        return total.item() / len(self.validation)


def _diverged(recipe: Recipe, symptom: str) -> InvalidInput:
    return InvalidInput(
        f"{symptom}: the learning rate {recipe.learning_rate:g} is too high; give a lower learning_rate= and another "
        "out=DIR"
    )


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
