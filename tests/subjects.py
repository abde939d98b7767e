"""Subjects for tests: bound to an example, without a data set."""

import warnings
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
    """A model as it is run on inputs like this one, whose values may lie anywhere."""
    subject = Subject(Classifier(model, classes, "model"), noise=noise, seed=seed).at(runtime)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "input 0 of list: values lie in")
        return subject.bind(find_dataset([example]), ())
