"""The checks before the first step: the networks run, and the data has the values that they take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from smoothcert.data.base import Dataset
from smoothcert.errors import InvalidInput
from smoothcert.models.base import Classifier
from smoothcert.models.check import answer
from smoothcert.models.denoisers import Denoised, Denoiser
from smoothcert.models.denoisers.check import check_output, check_values
from smoothcert.models.wrap import counted
from smoothcert.training.data import DeviceData
from smoothcert.training.methods import Denoising, Method
from smoothcert.training.methods.base import noisy_copies
from smoothcert.training.methods.denoiser import Judged
from smoothcert.training.trainee import Start, Trainee


def check_same_classes(training: Dataset, validation: Dataset) -> None:
    """Refuse validation data with other classes."""
    ours, theirs = training.class_names, validation.class_names
    if ours and theirs and ours != theirs:
        different = sorted(set(ours) ^ set(theirs))[:5]
        reason = f"only one of them has {', '.join(different)}" if different else "their order differs"
        raise InvalidInput(f"training and validation inputs must have the same classes: {reason}")


def check_sizes(batch: int, training: DeviceData, validation: DeviceData) -> None:
    """Refuse inputs of two shapes, and less data than a batch."""
    if validation.shape != training.shape:
        raise InvalidInput(f"the training inputs have the shape {training.shape}, the others have {validation.shape}")
    if len(training) < batch:
        raise InvalidInput(f"a batch of {batch} needs as many inputs, got {len(training)}: give a smaller one")


def check_examples(
    training: Dataset, training_data: DeviceData, validation: DeviceData, classes: int, classifier: Classifier | None
) -> None:
    """Refuse labels for which there is no class, or no example to train with."""
    if classifier is not None:
        classes = classifier.classes
    elif not training.class_names and classes > max(len(training_data), 2):
        raise InvalidInput(
            f"{training.name} has {len(training_data)} inputs and the label {classes - 1}, so most classes have no "
            "example: number the classes from 0 on, without gaps"
        )
    if (unknown := int(validation.labels.max())) >= classes:
        raise InvalidInput(f"a validation input has the label {unknown}, but there are {classes} classes: leave it out")


def check_data(method: Method, trainee: Trainee, data: DeviceData, name: str) -> None:
    """Refuse data with values that the method, a denoiser of this training, or the one that it trains does not take."""
    if data.inputs.dtype == torch.uint8:  # these are numbers from 0 to 1
        return
    check_values(method.input_range, data.inputs, name, taker=f"method {method.name}")
    for part in trainee.module.modules():
        if isinstance(part, Denoiser):
            check_values(part.values, data.inputs, name)


def with_classes(classifier: Classifier, method: Method, shape: tuple[int, ...], classes: int) -> Classifier:
    """The classifier with its number of classes, which is counted if its source does not know it."""
    try:
        return counted(
            classifier, torch.zeros(shape if method.noise is None else method.noise.draw.output_shape(shape))
        )
    except InvalidInput:
        return replace(classifier, classes=classes)


def check_networks(start: Start, method: Method, trainee: Trainee, data: DeviceData) -> None:
    """Run the given networks once on a few inputs, and refuse those that fail or return something unsuitable."""
    x = data.batch(torch.arange(min(len(data), 2), device=data.labels.device))
    denoises = isinstance(method, Denoising)
    if start.denoiser is not None and not denoises:
        check_output(start.denoiser, x[0].cpu(), method.sigma)
    if start.classifier is not None:
        module = trainee.module.classifier if isinstance(trainee.module, Denoised | Judged) else trainee.module
        noisy = noisy_copies(x, 1, sigma=method.sigma, noise=method.noise)[0]
        _check_classifier(start.classifier.name, module, start.classifier.classes, noisy, trained=not denoises)


def _check_classifier(name: str, module: nn.Module, classes: int, x: Tensor, *, trained: bool) -> None:
    def logits(x: Tensor) -> Any:
        output = module(x)
        if not isinstance(output, Tensor):  # certification looks for the logits in it, training does not
            raise InvalidInput(f"it must return a tensor of logits, and it returned a {type(output).__name__}")
        return output

    try:
        output = answer(logits, x, classes=classes)
        if not output.is_floating_point() or tuple(output.shape) != (len(x), classes):
            kind = str(output.dtype).removeprefix("torch.")
            raise InvalidInput(
                f"it must return logits of shape {(len(x), classes)}, and it returned {kind} of shape "
                f"{tuple(output.shape)}"
            )
        if trained and not output.requires_grad:
            raise InvalidInput("its logits have no gradient: remove torch.no_grad, detach and the like from it")
    except InvalidInput as error:
        raise InvalidInput(f"cannot train with {name}: {error.message}") from error
