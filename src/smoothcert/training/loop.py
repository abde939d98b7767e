"""The training loop: from the first epoch, or from the last checkpoint, to the weights."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from smoothcert import _check
from smoothcert._files import exclusive, write_whole
from smoothcert._registry import check_settings, differences
from smoothcert.data.base import Dataset
from smoothcert.device.compilation import cudnn_benchmark
from smoothcert.device.process_tuning import tune_process
from smoothcert.device.runtime import Runtime
from smoothcert.errors import InvalidInput, either, setting
from smoothcert.models.architectures import Normalized
from smoothcert.models.base import Classifier, check_values, state_hash
from smoothcert.models.denoisers import Denoiser
from smoothcert.models.outputs import floats
from smoothcert.training.methods.base import Method, Start, Trainee
from smoothcert.training.methods.denoiser import Denoising, Judged
from smoothcert.training.recipe import Recipe
from smoothcert.training.step import DeviceData, Step, compile_blocks

_CUDA_VALIDATION_NUMBERS = 4_096 * 3 * 32 * 32  # in the inputs of one batch
_SECONDS_BETWEEN_CHECKPOINTS = 3.0  # shorter epochs go without one, and without validation
_MAX_COMPILED_BLOCKS = (
    64  # residual blocks of different shapes, counted separately for training and evaluation
)


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
    runtime = _runtime(device, dtype, compile)
    method, measure = recipe.method, recipe.method.measure
    settings = recipe.settings() | {
        "dtype": runtime.dtype,
        "data": training.name,
        "fingerprint": training.fingerprint,
    }
    settings |= {} if classifier is None else {"classifier": classifier.weights_hash}
    settings |= {} if denoiser is None else {"denoiser": state_hash(denoiser)}
    with exclusive(out) as path:
        folder = Folder(path, settings)
        if (score := folder.recorded(folder.weights, measure)) is not None:
            return Trained(folder.weights, 0, **{measure: score})
        done = int(folder.recorded(folder.checkpoint, "epochs_done") or 0)
        tune_process(runtime.torch_device)
        own, held_out = (
            DeviceData.from_dataset(dataset, runtime.torch_device, labelled=method.needs_labels)
            for dataset in (training, validation)
        )
        classes = _checked_classes(recipe, own, held_out, classifier)
        with _training_context(runtime):
            _seed(recipe, 0)
            trainee = method.trainee(
                Start(recipe.architecture, own.shape, classes, classifier, denoiser)
            )
            for data in (own, held_out):
                _check_values(method, trainee, data)
            step = Step(trainee, recipe, own, runtime)
            given = [network.name for network in (classifier, denoiser) if network is not None]
            if given:
                _check_networks(step, classes, " behind ".join(given))
            if done:
                folder.load_checkpoint(step.tensors)
            _prepare(step, recipe, runtime)
            score = _score(step, recipe, held_out) if done == recipe.epochs else math.nan
            last = -math.inf
            for number in range(done, recipe.epochs):
                _seed(recipe, number + 1)
                trained = _epoch(step, recipe, number, on_step)
                if (
                    time.perf_counter() < last + _SECONDS_BETWEEN_CHECKPOINTS
                    and number + 1 < recipe.epochs
                ):
                    continue
                score = _score(step, recipe, held_out)
                folder.save(folder.checkpoint, step.tensors, {"epochs_done": number + 1})
                scores: dict[str, Any] = {measure: score}
                on_epoch(replace(trained, **scores))
                last = time.perf_counter()
        result = step.validated.trained
        network = result.network if isinstance(result, Normalized) else result
        folder.save(folder.weights, network.state_dict(), trainee.facts | {measure: f"{score:.4f}"})
        return Trained(folder.weights, recipe.epochs - done, **{measure: score})


def _runtime(device: str, dtype: str, compile: str) -> Runtime:
    runtime = Runtime.resolve(device, dtype, compile)
    if compile == "auto" and runtime.compile == "fast":  # the fast path has no gradients
        runtime = replace(runtime, compile="default")
    if (
        dtype == "auto" and runtime.torch_device.type != "cuda"
    ):  # all CPUs should train the same weights
        runtime = replace(runtime, dtype="float32")
    _check.one_of("dtype", runtime.dtype, ("float32", "bfloat16"))
    _check.one_of("compile", runtime.compile, ("none", "default"))
    return runtime


def _checked_classes(
    recipe: Recipe, own: DeviceData, held_out: DeviceData, classifier: Classifier | None
) -> int:
    """The number of classes. Data that does not fit together, or has labels without a class, is refused."""
    if held_out.shape != own.shape:
        raise InvalidInput(
            f"the training inputs have the shape {own.shape}, the others have {held_out.shape}"
        )
    if len(own) < recipe.batch:
        raise InvalidInput(
            f"{setting('batch', recipe.batch)} needs as many inputs, got {len(own)}: give a smaller one"
        )
    names, others = own.class_names, held_out.class_names
    classes = max(len(names or ()), int(own.labels.max()) + 1, 2)
    if classifier is not None:
        classes = classifier.classes or classes
    if not recipe.method.needs_labels:
        return classes
    if names and others and names != others:
        different = sorted(set(names) ^ set(others))[:5]
        reason = (
            f"only one of them has {', '.join(different)}" if different else "their order differs"
        )
        raise InvalidInput(f"training and validation inputs must have the same classes: {reason}")
    if classifier is None and not names and classes > max(len(own), 2):
        raise InvalidInput(
            f"{own.name} has {len(own)} inputs and the label {classes - 1}, so most classes have no example: number "
            "the classes from 0 on, without gaps"
        )
    if (unknown := int(torch.cat([own.labels, held_out.labels]).max())) >= classes:
        raise InvalidInput(
            f"an input has the label {unknown}, but there are {classes} classes: leave it out"
        )
    return classes


def _check_values(method: Method, trainee: Trainee, data: DeviceData) -> None:
    """Refuse data with values that the method, a denoiser of this training, or the one that it trains does not take."""
    if data.inputs.dtype == torch.uint8:  # these are numbers from 0 to 1
        return
    check_values(method.input_range, data.inputs, data.name, taker=f"method {method.name}")
    for part in trainee.module.modules():
        if isinstance(part, Denoiser):
            check_values(part.values, data.inputs, data.name)


def _check_networks(step: Step, classes: int, name: str) -> None:
    """Run the given networks once on a few inputs, and refuse those that fail or return something unsuitable."""
    method, module = step.method, step.validated.module
    judge = module.classifier if isinstance(module, Judged) else None
    if judge is None and isinstance(method, Denoising):
        return
    x = step.data.batch(torch.arange(min(len(step.data), 2), device=step.data.labels.device))
    with step.autocast():
        network, what = judge or partial(method.outputs, module), f"cannot train with {name}: it"
        output = floats(network, x, (len(x), classes), what=what)
    if judge is None and not output.requires_grad:
        raise InvalidInput(
            f"cannot train with {name}: its logits have no gradient (torch.no_grad or detach?)"
        )


def _prepare(step: Step, recipe: Recipe, runtime: Runtime) -> None:
    """Compile the network and capture the step where the runtime asks for it."""
    try:
        if runtime.compile == "default":
            compile_blocks(step.module)
        if runtime.torch_device.type == "cuda":
            step.capture()
    except torch.OutOfMemoryError:
        raise InvalidInput(
            f"a batch of {recipe.batch} does not fit into the memory of {runtime.device}: give a smaller batch, such "
            f"as {setting('batch', max(recipe.batch // 2, 1))}"
        ) from None


def _epoch(step: Step, recipe: Recipe, number: int, on_step: Callable[[int], None]) -> Epoch:
    """Train one epoch; `number` counts from 0. The result has no score on validation inputs yet."""
    start = time.perf_counter()
    order = torch.randperm(len(step.data), device=step.data.labels.device)
    batches = (
        len(order) // recipe.batch
    )  # the inputs of the last, incomplete batch are left out in this epoch
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
def _score(step: Step, recipe: Recipe, data: DeviceData) -> float:
    """The mean score of the validation inputs, with one noise sample per input that is the same in every epoch."""
    _seed(recipe, recipe.epochs + 1)
    method, device, validated = recipe.method, data.labels.device, step.validated
    if not method.keeps_mean:
        validated.trained.load_state_dict(step.trained.state_dict())
    total = torch.zeros((), dtype=torch.double, device=device)
    numbers = torch.ones(
        (), dtype=torch.bool, device=device
    )  # a logit may be -inf, but not NaN or inf
    # On CUDA, large batches are faster because launching a kernel takes longer than computing a row.
    fitting = max(_CUDA_VALIDATION_NUMBERS // math.prod(data.shape), 1)
    batch = fitting if device.type == "cuda" else recipe.batch
    for index in torch.split(torch.arange(len(data), device=device), batch):
        x = data.batch(index)
        with step.autocast():
            outputs = method.outputs(validated.module, x)
        numbers &= (outputs < math.inf).all()
        total += method.score(outputs, x, data.labels[index]).double().sum()
    if not numbers.item() or not math.isfinite(total.item()):
        raise _diverged(recipe, "the outputs for validation inputs are not finite numbers")
    return total.item() / len(data)


def _diverged(recipe: Recipe, symptom: str) -> InvalidInput:
    return InvalidInput(
        f"{symptom}: the learning rate {recipe.learning_rate:g} is too high; give a lower "
        f"{either('learning_rate=', '--lr')} and another {setting('out', 'DIR')}"
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
        stack.enter_context(
            torch.random.fork_rng([torch.cuda.current_device()] if device.type == "cuda" else [])
        )
        if runtime.compile != "none":
            from torch._dynamo import config as dynamo_config  # this import takes a second

            stack.enter_context(dynamo_config.patch(recompile_limit=_MAX_COMPILED_BLOCKS))
        yield


_RESULTS = {"accuracy", "psnr", "classes", "shape", "sigma_high", "epochs_done"}
"""What the files record beside the settings."""


class Folder:
    """The folder of one training run. Each file is written completely or not at all."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.weights, self.checkpoint = (
            path / "weights.safetensors",
            path / "checkpoint.safetensors",
        )
        self.settings = {key: str(value) for key, value in settings.items()}

    def recorded(self, path: Path, number: str) -> float | None:
        """A number that a file of this run records; None if there is no such file. Another run's file is an error."""
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                there = file.metadata() or {}
        except (OSError, SafetensorError) as error:
            raise InvalidInput(
                f"{path} is damaged ({error}): delete it to start again, or give another {setting('out', 'DIR')}"
            ) from None
        if not {"method", "fingerprint"} <= there.keys():
            raise InvalidInput(
                f"{path} does not belong to a training run of smoothcert: give another {setting('out', 'DIR')}"
            )
        settings = {key: value for key, value in there.items() if key not in _RESULTS}
        check_settings(self.path, differences(settings, self.settings), what="training run")
        return float(there.get(number, "nan"))

    def save(self, path: Path, tensors: Mapping[str, Tensor], results: Mapping[str, Any]) -> None:
        """Write a file with the settings and these results."""
        # Copies, because the format has no shared memory, as tied weights have it.
        content = save(
            {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()},
            self.settings | {key: str(value) for key, value in results.items()},
        )
        # The library writes its header in random order. We sort it, so that equal weights give equal files.
        end = 8 + int.from_bytes(content[:8], "little")
        header = json.dumps(
            json.loads(content[8:end]), sort_keys=True, separators=(",", ":")
        ).encode()
        header += b" " * (-len(header) % 8)
        write_whole(path, len(header).to_bytes(8, "little") + header + content[end:])

    def load_checkpoint(self, tensors: Mapping[str, Tensor]) -> None:
        """Read the checkpoint."""
        saved = load_file(self.checkpoint)
        if other := saved.keys() ^ tensors.keys():
            raise InvalidInput(
                f"{self.checkpoint} is from a network with other trained layers: only one of them has {min(other)}; "
                f"give another {setting('out', 'DIR')}"
            )
        for name, value in saved.items():
            tensors[name].copy_(value)
