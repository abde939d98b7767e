"""A data set in the memory of the device, and the augmentation of its batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from smoothcert.data.base import Dataset
from smoothcert.errors import InvalidInput

_PADDING = 4


@dataclass(frozen=True)
class DeviceData:
    """A whole data set in the memory of a device."""

    inputs: Tensor
    labels: Tensor
    name: str = ""
    class_names: Sequence[str] | None = None

    @classmethod
    def from_dataset(cls, dataset: Dataset, device: torch.device, *, labelled: bool = True) -> DeviceData:
        """Read a data set once and copy it to a device."""
        pairs = [(_as_bytes(x.float()), label) for x, label in map(dataset.__getitem__, range(len(dataset)))]
        shapes = {tuple(x.shape) for x, _ in pairs}
        if len(shapes) != 1:
            raise InvalidInput(f"{dataset.name} has inputs of {len(shapes)} shapes: training needs inputs of one shape")
        labels = torch.tensor([label for _, label in pairs])
        if labelled and (labels < 0).any():
            raise InvalidInput(f"{dataset.name} has inputs without a label: training needs a label for each input")
        if bad := [index for index, (x, _) in enumerate(pairs) if x.is_floating_point() and not x.isfinite().all()]:
            raise InvalidInput(f"input {bad[0]} of {dataset.name} has NaN or infinite values")
        if all(x.dtype == torch.uint8 for x, _ in pairs):
            inputs = torch.stack([x for x, _ in pairs])
        else:
            inputs = torch.stack([_as_floats(x) for x, _ in pairs])
        return cls(inputs.to(device), labels.to(device), dataset.name, dataset.class_names)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input."""
        return tuple(self.inputs.shape[1:])

    def batch(self, index: Tensor) -> Tensor:
        """Some of the inputs as floats in [0, 1]."""
        return _as_floats(self.inputs[index])


def _as_bytes(x: Tensor) -> Tensor:
    """An input as bytes if that is exact, which takes a quarter of the memory; otherwise the input itself."""
    values = x.numpy()  # torch would use threads, which wait for one another longer than they compute
    scaled = np.rint(values * values.dtype.type(255))
    if np.array_equal(scaled / values.dtype.type(255), values) and scaled.min() >= 0 and scaled.max() <= 255:
        return torch.from_numpy(scaled.astype(np.uint8))
    return x


def _as_floats(x: Tensor) -> Tensor:
    return x.float() / 255 if x.dtype == torch.uint8 else x


def augment(x: Tensor) -> Tensor:
    """Shift each colour image by up to 4 pixels and mirror half of them, at random."""
    if x.ndim != 4 or x.shape[1] != 3:
        return x
    batch, _, height, width = x.shape
    down, right = torch.randint(0, 2 * _PADDING + 1, (2, batch, 1), device=x.device)
    rows = down + torch.arange(height, device=x.device)
    columns = right + torch.arange(width, device=x.device)
    mirrored = torch.rand(batch, 1, device=x.device) < 0.5
    columns = torch.where(mirrored, columns.flip(1), columns)
    padded = functional.pad(x, [_PADDING] * 4)
    image = torch.arange(batch, device=x.device)[:, None, None]
    # This kind of indexing moves the channels to the end: (batch, height, width, channels).
    return padded[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
