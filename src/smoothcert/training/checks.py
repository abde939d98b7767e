"""Checks before training: data that does not fit, and networks that cannot be trained."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from smoothcert.errors import InvalidInput
from smoothcert.models.base import Classifier, check_values
from smoothcert.models.denoisers import Denoiser
from smoothcert.models.outputs import floats
from smoothcert.training.device_data import DeviceData
from smoothcert.training.methods.base import Method, Trainee
from smoothcert.training.methods.denoiser import Denoising, Judged
from smoothcert.training.recipe import Recipe
from smoothcert.training.step import Step

_SHOWN_CLASSES = 5


def check_shapes(recipe: Recipe, training: DeviceData, validation: DeviceData) -> None:
    """Refuse validation inputs of another shape, and fewer training inputs than a batch has."""
    if validation.shape != training.shape:
        raise InvalidInput(
            "different-shapes",
            "the training inputs have the shape {training}, the others have {validation}",
            training=training.shape,
            validation=validation.shape,
        )
    if len(training) < recipe.batch:
        raise InvalidInput(
            "batch-too-large",
            "`batch={batch}` needs as many inputs, got {inputs}: give a smaller one",
            batch=recipe.batch,
            inputs=len(training),
        )


def number_of_classes(training: DeviceData, classifier: Classifier | None) -> int:
    """The number of classes of the classifier to start from, or else of the data."""
    if classifier is not None and classifier.classes:
        return classifier.classes
    names = training.class_names or ()
    return max(len(names), int(training.labels.max()) + 1, 2)


def check_labels(training: DeviceData, validation: DeviceData, classes: int) -> None:
    """Refuse labels without a class, and data sets whose classes differ."""
    if training.class_names and validation.class_names:
        _check_names(training.class_names, validation.class_names)
    labels = torch.cat([training.labels, validation.labels])
    largest = int(labels.max())
    if largest >= classes:
        raise InvalidInput(
            "label-without-class",
            "an input has the label {label}, but there are {classes} classes: leave it out",
            label=largest,
            classes=classes,
        )


def check_examples(training: DeviceData) -> None:
    """Refuse labels from which a new classifier would have more classes than there are inputs."""
    largest = int(training.labels.max())
    if not training.class_names and largest >= max(len(training), 2):
        raise InvalidInput(
            "classes-without-examples",
            "{data} has {inputs} inputs and the label {label}, so most classes have no example: "
            "number the classes from 0 on, without gaps",
            data=training.name,
            inputs=len(training),
            label=largest,
        )


def _check_names(training: Sequence[str], validation: Sequence[str]) -> None:
    if training == validation:
        return
    reason = "their order differs"
    only_one = sorted(set(training) ^ set(validation))
    if only_one:
        reason = f"only one of them has {', '.join(only_one[:_SHOWN_CLASSES])}"
    raise InvalidInput(
        "different-classes",
        "training and validation inputs must have the same classes: {reason}",
        reason=reason,
    )


def check_data(method: Method, trainee: Trainee, data: DeviceData) -> None:
    """Refuse values that the method does not take, or a denoiser that is used or trained."""
    if data.inputs.dtype == torch.uint8:  # these are numbers from 0 to 1
        return
    check_values(method.input_range, data.inputs, data.name, taker=f"method {method.name}")
    for part in trainee.module.modules():
        if isinstance(part, Denoiser):
            check_values(part.values, data.inputs, data.name)


def check_networks(step: Step, classes: int, name: str) -> None:
    """Run the networks of the user once on a few inputs, and refuse those that cannot be used."""
    module = step.validated.module
    x = step.data.batch(torch.arange(min(len(step.data), 2), device=step.data.labels.device))
    what = f"cannot train with {name}: it"
    with step.autocast():
        if isinstance(module, Judged):
            floats(module.classifier, x, (len(x), classes), what=what)
        if isinstance(step.method, Denoising):
            return
        logits = floats(partial(step.method.outputs, module), x, (len(x), classes), what=what)
    if not logits.requires_grad:
        raise InvalidInput(
            "no-gradient",
            "cannot train with {name}: its logits have no gradient (torch.no_grad or detach?)",
            name=name,
        )
