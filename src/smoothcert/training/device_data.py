"""A whole data set in the memory of a device, and the augmentation of its images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from smoothcert.data.base import Dataset, NumpyDataset
from smoothcert.errors import InvalidInput

_LARGEST_SHIFT = 4  # pixels


@dataclass(frozen=True)
class DeviceData:
    """A whole data set in the memory of a device.

    Args:
        inputs: The inputs, as bytes or as floats. Bytes take a quarter of the memory.
        labels: The class of each input, -1 where it is unknown.
        name: The name of the data set, for messages.
        class_names: The names of the classes, if they are known.
    """

    inputs: Tensor
    labels: Tensor
    name: str = ""
    class_names: Sequence[str] | None = None

    @classmethod
    def from_dataset(
        cls, dataset: Dataset, device: torch.device, *, labelled: bool = True
    ) -> DeviceData:
        """Read a data set once and copy it to a device.

        Args:
            dataset: The data set.
            device: The device.
            labelled: Whether every input needs a label.
        """
        pairs = [_read(dataset, index) for index in range(len(dataset))]
        shapes = {x.shape for x, _ in pairs}
        if len(shapes) != 1:
            raise InvalidInput(
                "several-shapes",
                "{data} has inputs of {shapes} shapes: training needs inputs of one shape",
                data=dataset.name,
                shapes=len(shapes),
            )
        labels = torch.tensor([label for _, label in pairs])
        if labelled and (labels < 0).any():
            raise InvalidInput(
                "missing-labels",
                "{data} has inputs without a label: training needs a label for each input",
                data=dataset.name,
            )
        for index, (x, _) in enumerate(pairs):
            if not np.isfinite(x).all():
                raise InvalidInput(
                    "not-finite",
                    "input {input} of {data} has NaN or infinite values",
                    input=index,
                    data=dataset.name,
                )
        inputs = torch.from_numpy(np.stack([x for x, _ in pairs]))
        return cls(inputs.to(device), labels.to(device), dataset.name, dataset.class_names)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.inputs.shape[1:])

    def batch(self, index: Tensor) -> Tensor:
        """Some of the inputs as floats. Bytes become numbers from 0 to 1."""
        x = self.inputs[index]
        if x.dtype == torch.uint8:
            return x.float() / 255
        return x


def _read(dataset: Dataset, index: int) -> tuple[NDArray[Any], int]:
    """An input and its label: as bytes if the data set stores bytes, otherwise as float32."""
    if not isinstance(dataset, NumpyDataset):
        x, label = dataset[index]
        return x.float().numpy(), label
    array = dataset.stored(index)
    if array.dtype != np.uint8:
        array = array.astype(np.float32)
    return array, int(dataset.labels[index])


def augment(x: Tensor) -> Tensor:
    """Shift each colour image by up to 4 pixels and mirror half of them, at random."""
    if x.ndim != 4 or x.shape[1] != 3:
        return x
    batch, _, height, width = x.shape
    down, right = torch.randint(0, 2 * _LARGEST_SHIFT + 1, (2, batch, 1), device=x.device)
    rows = down + torch.arange(height, device=x.device)
    columns = right + torch.arange(width, device=x.device)
    mirrored = torch.rand(batch, 1, device=x.device) < 0.5
    columns = torch.where(mirrored, columns.flip(1), columns)
    padded = functional.pad(x, [_LARGEST_SHIFT] * 4)
    image = torch.arange(batch, device=x.device)[:, None, None]
    # This kind of indexing moves the channels to the end: (batch, height, width, channels).
    return padded[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
