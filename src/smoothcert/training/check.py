"""The checks before the first step: the networks run, and the data has the values that they take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

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
