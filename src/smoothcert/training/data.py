"""A data set held on the device, and what is done to a batch of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from smoothcert.datasets.base import Dataset
from smoothcert.errors import InvalidInput

_PADDING = 4


@dataclass(frozen=True)
class HeldData:
    """Inputs as bytes where they were bytes, else as floats; labels."""

    inputs: Tensor
    labels: Tensor

    @classmethod
    def hold(cls, dataset: Dataset, device: torch.device) -> HeldData:
        """Read a labelled data set once."""
        pairs = [dataset[index] for index in range(len(dataset))]
        shapes = {tuple(x.shape) for x, _ in pairs}
        if len(shapes) != 1:
            raise InvalidInput(
                f"{dataset.name} has inputs of {len(shapes)} shapes: training needs them all of one shape"
            )
        labels = torch.tensor([label for _, label in pairs])
        if (labels < 0).any():
            raise InvalidInput(f"{dataset.name} has inputs without a label: training needs one for each")
        inputs = torch.stack([x for x, _ in pairs])
        if bad := (~inputs.flatten(1).isfinite().all(1)).nonzero().flatten().tolist():
            raise InvalidInput(f"input {bad[0]} of {dataset.name} has NaN or infinite values")
        scaled = inputs.mul(255).round_()
        if torch.equal(scaled / 255, inputs):
            inputs = scaled.to(torch.uint8)
        return cls(inputs.to(device), labels.to(device))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.inputs.shape[1:])

    def batch(self, index: Tensor) -> Tensor:
        """The inputs at `index`, as floats in [0, 1]."""
        inputs = self.inputs[index]
        return inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs


def augment(x: Tensor) -> Tensor:
    """A random shift by up to 4 pixels and a random mirror image for each colour image; other inputs as they are."""
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
    # Indexing around the channels puts them last: (batch, height, width, channels).
    return padded[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
