"""The training loop: from the first epoch, or from the last checkpoint, to the weights."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smoothcert import _check
from smoothcert._files import exclusive
from smoothcert.data.base import Dataset
from smoothcert.device.compilation import cudnn_benchmark
from smoothcert.device.runtime import Runtime, tune_process
from smoothcert.errors import InvalidInput
from smoothcert.models.architectures import Normalized
from smoothcert.models.base import Classifier, state_hash
from smoothcert.models.denoisers import Denoiser
from smoothcert.training import checks
from smoothcert.training.device_data import DeviceData
from smoothcert.training.folder import TrainingFolder
from smoothcert.training.methods.base import Start
from smoothcert.training.recipe import Recipe
from smoothcert.training.step import Step, compile_blocks

_CUDA_VALIDATION_NUMBERS = 4_096 * 3 * 32 * 32  # numbers in the inputs of one batch
_MAX_COMPILED_BLOCKS = 64  # residual blocks of different shapes, in training and in evaluation


@dataclass(frozen=True)
class Epoch:
    """The result of one epoch.

    A classifier has an accuracy, a denoiser has a peak signal-to-noise ratio (PSNR).

    Args:
        number: The number of the epoch, from 1 on.
        loss: The mean training loss.
        images_per_second: The speed of the training.
        train_accuracy: The accuracy on the noisy training inputs, each measured when the epoch
            reached it.
        accuracy: The accuracy on the validation inputs at the end of the epoch, with one noise
            sample per input.
        train_psnr: The mean PSNR of the denoised training inputs in dB, each measured when the
            epoch reached it.
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
    checkpoint_seconds: float = 3.0,
    on_step: Callable[[int], None] = lambda images: None,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Trained:
    """Train a network for smoothing and save its weights in `out/weights.safetensors`.

    After an interruption, the same call continues after the last checkpoint. On a CPU, it ends with
    the same weights as an uninterrupted run, because all randomness depends only on the seed and
    the number of the epoch. On CUDA, training uses bfloat16, the compiler and a CUDA graph by
    default.

    Args:
        recipe: How to train.
        training: The data to train on. Every input needs a label, unless a denoiser is trained.
            Inputs of shape (3, height, width) are taken to be colour images: each is shifted by up
            to 4 pixels, and half are mirrored.
        validation: The data to measure the accuracy on.
        out: The folder for checkpoints and weights.
        classifier: The classifier to start from; by default, it has random weights. Parameters that
            do not require a gradient stay frozen, unless this is so for all of them. If a denoiser
            is trained, the fixed classifier of its stability loss.
        denoiser: A fixed denoiser in front of the classifier. If a denoiser is trained, the one to
            start from.
        device: "cpu", "cuda", "cuda:N" or "mps". "auto" takes the fastest device.
        dtype: "float32" or "bfloat16". "auto" takes bfloat16 on CUDA.
        compile: "none" or "default". "auto" compiles on CUDA.
        checkpoint_seconds: The least time between two checkpoints. An epoch that ends earlier is
            neither validated nor saved nor reported, unless it is the last one.
        on_step: Called after each step with the number of inputs of the step.
        on_epoch: Called after each checkpoint with the result of the epoch.

    Raises:
        InvalidInput: A setting is invalid, the data does not fit the architecture, or `out` holds a
            training run with other settings.
    """
    runtime = _runtime(device, dtype, compile)
    measure = recipe.method.measure
    with exclusive(out) as path:
        folder = TrainingFolder(path, _settings(recipe, training, classifier, denoiser, runtime))
        score = folder.recorded(folder.weights, measure)
        if score is not None:
            return Trained(folder.weights, epochs_now=0, **{measure: score})
        epochs_done = int(folder.recorded(folder.checkpoint, "epochs_done") or 0)
        tune_process(runtime.torch_device)
        labelled = recipe.method.needs_labels
        data = DeviceData.from_dataset(training, runtime.torch_device, labelled=labelled)
        held_out = DeviceData.from_dataset(validation, runtime.torch_device, labelled=labelled)
        with _training_context(runtime):
            step = _first_step(recipe, data, held_out, classifier, denoiser, runtime)
            if epochs_done:
                folder.load_checkpoint(step.tensors)
            _compile_and_capture(step, recipe, runtime)
            if epochs_done == recipe.epochs:
                score = _validate(step, recipe, held_out)
            last_checkpoint = -math.inf
            for number in range(epochs_done, recipe.epochs):
                epoch = _train_epoch(step, recipe, number, on_step)
                is_last = epoch.number == recipe.epochs
                is_soon = time.perf_counter() < last_checkpoint + checkpoint_seconds
                if is_soon and not is_last:
                    continue
                score = _validate(step, recipe, held_out)
                folder.save(folder.checkpoint, step.tensors, {"epochs_done": epoch.number})
                validated: dict[str, Any] = {measure: score}
                on_epoch(replace(epoch, **validated))
                last_checkpoint = time.perf_counter()
        _save_weights(folder, step, {measure: f"{score:.4f}"})
        return Trained(folder.weights, recipe.epochs - epochs_done, **{measure: score})


def _save_weights(folder: TrainingFolder, step: Step, score: dict[str, str]) -> None:
    """Write the weights, of which the normalisation of a bundled network is no part."""
    network = step.validated.trained
    if isinstance(network, Normalized):
        network = network.network
    folder.save(folder.weights, network.state_dict(), step.validated.facts | score)


def _settings(
    recipe: Recipe,
    training: Dataset,
    classifier: Classifier | None,
    denoiser: Denoiser | None,
    runtime: Runtime,
) -> dict[str, object]:
    """What determines the weights, by name."""
    settings = recipe.settings()
    settings["dtype"] = runtime.dtype
    settings["data"] = training.name
    settings["fingerprint"] = training.fingerprint
    if classifier is not None:
        settings["classifier"] = classifier.weights_hash
    if denoiser is not None:
        settings["denoiser"] = state_hash(denoiser)
    return settings


def _runtime(device: str, dtype: str, compile: str) -> Runtime:
    runtime = Runtime.resolve(device, dtype, compile)
    if compile == "auto" and runtime.compile == "fast":  # the fast path has no gradients
        runtime = replace(runtime, compile="default")
    if dtype == "auto":
        # Gradients overflow in float16. All CPUs train the same weights.
        is_reduced = runtime.torch_device.type == "cuda" and "bfloat16" in runtime.formats
        runtime = replace(runtime, dtype="bfloat16" if is_reduced else "float32")
    _check.one_of("dtype", runtime.dtype, ("float32", "bfloat16"))
    _check.one_of("compile", runtime.compile, ("none", "default"))
    return runtime


def _first_step(
    recipe: Recipe,
    training: DeviceData,
    validation: DeviceData,
    classifier: Classifier | None,
    denoiser: Denoiser | None,
    runtime: Runtime,
) -> Step:
    """The step before the first epoch, after a check that data and networks fit together."""
    method = recipe.method
    checks.check_shapes(recipe, training, validation)
    classes = checks.number_of_classes(training, classifier)
    if method.needs_labels:
        checks.check_labels(training, validation, classes)
    _seed(recipe, 0)
    start = Start(recipe.architecture, training.shape, classes, classifier, denoiser)
    trainee = method.trainee(start)
    for data in (training, validation):
        checks.check_data(method, trainee, data)
    step = Step(trainee, recipe, training, runtime)
    names = [network.name for network in (classifier, denoiser) if network is not None]
    if names:
        checks.check_networks(step, classes, " behind ".join(names))
    return step


def _compile_and_capture(step: Step, recipe: Recipe, runtime: Runtime) -> None:
    """Compile the network and capture the step as a CUDA graph, where the runtime asks for it."""
    try:
        if runtime.compile == "default":
            compile_blocks(step.module)
        if runtime.torch_device.type == "cuda":
            step.capture()
    except torch.OutOfMemoryError:
        raise InvalidInput(
            "out-of-memory",
            "a batch of {batch} does not fit into the memory of {device}: give a smaller batch, "
            "such as `batch={smaller}`",
            batch=recipe.batch,
            device=runtime.device,
            smaller=max(recipe.batch // 2, 1),
        ) from None


def _train_epoch(step: Step, recipe: Recipe, number: int, on_step: Callable[[int], None]) -> Epoch:
    """Train one epoch; `number` counts from 0. The result has no score on validation inputs yet."""
    _seed(recipe, number + 1)
    start = time.perf_counter()
    order = torch.randperm(len(step.data), device=step.data.labels.device)
    batches = len(order) // recipe.batch  # the last, incomplete batch is left out in this epoch
    step.epoch.fill_(number)
    step.totals.zero_()
    for index in range(batches):
        rate = recipe.rate((number + index / batches) / recipe.epochs)
        rows = order[index * recipe.batch : (index + 1) * recipe.batch]
        step(rows, rate, number * batches + index + 1)
        on_step(recipe.batch)
    loss, train_score = (step.totals / batches).tolist()
    seconds = time.perf_counter() - start
    if not math.isfinite(loss):
        raise _diverged(recipe, f"the loss is not a finite number in epoch {number + 1}")
    scores = {f"train_{recipe.method.measure}": train_score}
    return Epoch(number + 1, loss, batches * recipe.batch / seconds, **scores)


@torch.no_grad()
def _validate(step: Step, recipe: Recipe, data: DeviceData) -> float:
    """The mean score of the validation inputs, with the same noise sample in every epoch."""
    _seed(recipe, recipe.epochs + 1)
    method = recipe.method
    device = data.labels.device
    validated = step.validated
    if not method.keeps_mean:
        validated.trained.load_state_dict(step.trained.state_dict())
    batch = recipe.batch
    if device.type == "cuda":  # large batches are faster: launching kernels would dominate
        batch = max(_CUDA_VALIDATION_NUMBERS // math.prod(data.shape), 1)
    total = torch.zeros((), dtype=torch.double, device=device)
    valid = torch.ones((), dtype=torch.bool, device=device)
    for index in torch.split(torch.arange(len(data), device=device), batch):
        x = step.transformed(data.batch(index))
        with step.autocast():
            outputs = method.outputs(validated.module, x)
        valid &= (outputs < math.inf).all()  # a logit may be -inf, but not NaN or inf
        total += method.score(outputs, x, data.labels[index]).double().sum()
    if not valid.item() or not math.isfinite(total.item()):
        raise _diverged(recipe, "the outputs for validation inputs are not finite numbers")
    return total.item() / len(data)


def _diverged(recipe: Recipe, symptom: str) -> InvalidInput:
    return InvalidInput(
        "diverged",
        "{symptom}: the learning rate {learning_rate:g} is too high; give a lower "
        "`learning_rate=|--lr` and another `out=DIR`",
        symptom=symptom,
        learning_rate=recipe.learning_rate,
    )


def _seed(recipe: Recipe, stream: int) -> None:
    """Seed torch.

    Stream 0 is for the first weights, stream e for epoch e, and the last one for validation.
    """
    state = np.random.SeedSequence([recipe.seed, stream]).generate_state(1, np.uint64)
    torch.manual_seed(int(state[0] >> 1))


@contextmanager
def _training_context(runtime: Runtime) -> Iterator[None]:
    """Set torch up for training; afterwards, restore the caller's random state and settings."""
    cuda_devices = []
    with ExitStack() as stack:
        if runtime.torch_device.type == "cuda":
            stack.enter_context(torch.cuda.device(runtime.torch_device))
            stack.enter_context(cudnn_benchmark())
            cuda_devices.append(torch.cuda.current_device())
        stack.enter_context(torch.random.fork_rng(cuda_devices))
        if runtime.compile != "none":
            from torch._dynamo import config as dynamo_config  # this import takes a second

            stack.enter_context(dynamo_config.patch(recompile_limit=_MAX_COMPILED_BLOCKS))
        yield
