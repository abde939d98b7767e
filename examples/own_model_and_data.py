r"""Your own model and your own data: train a small network on drawn pictures, probe it, certify it.

    python examples/own_model_and_data.py

The pictures are written to drawings.npz with the names of their classes, and the weights to drawings.pth. From then on
the command line knows both, because a function without arguments makes the network:

    smoothcert certify --model examples/own_model_and_data.py:network --weights drawings.pth --data drawings.npz \
        --sigma 0.25 --radii 0,0.25,0.5 --out runs/drawings
"""

import numpy as np
import torch
from torch import nn

import smoothcert as sc

NAMES = ("lines", "squares", "crosses")
SIGMA = 0.25


def network():
    """Any module that takes pictures in [0, 1] and returns logits. Normalisation belongs inside."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(4),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(32, len(NAMES)),
    )


def drawings(count, seed):
    """White lines, squares and crosses at random places of a black picture."""
    random = np.random.default_rng(seed)
    pictures = np.zeros((count, 1, 16, 16), np.float32)
    labels = np.arange(count) % len(NAMES)
    for picture, label in zip(pictures[:, 0], labels, strict=True):
        top, left = random.integers(0, 8, 2)
        part = picture[top : top + 8, left : left + 8]
        if label != 1:
            part[3:5] = 1
        if label == 1:
            part[:] = 1
            part[2:6, 2:6] = 0
        if label == 2:
            part[:, 3:5] = 1
    return pictures, labels


def trained():
    """The network, trained on noisy pictures: what is certified is its vote under noise."""
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    pictures, labels = map(torch.from_numpy, drawings(600, seed=0))
    for _ in range(60):
        rows = torch.randint(len(pictures), (64,))
        noisy = pictures[rows] + SIGMA * torch.randn_like(pictures[rows])
        loss = nn.functional.cross_entropy(model(noisy), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


if __name__ == "__main__":
    pictures, labels = drawings(30, seed=1)
    np.savez("drawings.npz", x=pictures, y=labels, names=NAMES)
    model = trained()
    torch.save(model.state_dict(), "drawings.pth")

    print(sc.probe(model, "drawings.npz", sigmas=[0.25, 1.0], device="cpu"))
    smoothed = sc.Smoothed(model, sigma=SIGMA, device="cpu", batch=500)
    results = smoothed.certify(pictures, labels, radii=[0, 0.25, 0.5], samples=2_000)
    print(sc.table({"drawings": results}, columns=["ca", "samples"]))
    print(smoothed.certify(pictures, labels, method="input-specific", samples=2_000))
