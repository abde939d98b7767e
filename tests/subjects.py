"""Subjects for tests: bound to an example, without a data set."""

from typing import Any

from torch import Tensor

from smoothcert.data import find_dataset
from smoothcert.device.runtime import Runtime
from smoothcert.models import Classifier
from smoothcert.noises import Noise
from smoothcert.smoothed import Subject


def bound(
    model: Any,
    classes: int,
    noise: Noise,
    runtime: Runtime,
    example: Tensor,
    *,
    seed: int = 0,
) -> Subject:
    """A model as it is run on inputs like this one."""
    subject = Subject(Classifier(model, classes, "model"), noise=noise, seed=seed).at(runtime)
    return subject.bind(find_dataset([example]), ())
