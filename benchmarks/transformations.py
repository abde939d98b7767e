"""A picture of bundled inputs, turned by the largest angles that are proved: docs/images/turned.png.

Run `python -m benchmarks.transformations`.
"""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image

from benchmarks.results import ROOT
from smoothcert import Gaussian, Rotation, certify, load_dataset
from smoothcert.transformations.pictures import transform

RADII = [5, 10, 15, 20, 30]
_SHOWN = 3
_ENLARGED = 4
_GAP = 8


def draw() -> list[tuple[int, float]]:
    """Draw the picture; returns the inputs with their angles."""
    noise = Rotation(Gaussian(0.25))
    results = certify(
        "fashion-cnn",
        "fashion-mnist",
        noise=noise,
        radii=RADII,
        known_labels=True,
        limit=40,
        device="cpu",
    )
    data = load_dataset("fashion-mnist")
    best: dict[int, int] = {}
    for number in np.argsort(-results.radius, kind="stable"):  # one input of each class
        best.setdefault(int(results.label[number]), int(number))
    rows = []
    shown = []
    for number in list(best.values())[:_SHOWN]:
        id = int(results.id[number])
        angle = float(results.radius[number])
        amounts = torch.tensor([-angle, -angle / 2, 0, angle / 2, angle], dtype=torch.float64)
        x = data[id][0]
        turned = transform(x.expand(5, *x.shape), noise, amounts)[:, 0]
        rows.append(np.concatenate([_framed(one.numpy()) for one in turned], axis=1))
        shown.append((id, angle))
    Image.fromarray(np.concatenate(rows)).save(ROOT / "docs" / "images" / "turned.png")
    return shown


def _framed(values: np.ndarray) -> np.ndarray:
    enlarged = np.kron(255 - np.round(255 * values), np.ones((_ENLARGED, _ENLARGED)))
    return np.pad(enlarged, _GAP, constant_values=255).astype(np.uint8)


if __name__ == "__main__":
    print(draw())
