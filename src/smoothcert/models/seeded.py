"""Classifiers that are random by design, as fixed functions of their input."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.models.base import Network
from smoothcert.models.logits import find_logits


class SeededRows(nn.Module):
    """A random classifier as a fixed function.

    For each row, the random generators are seeded with a hash of the row. Diffusion denoisers,
    randomised defences and dropout at test time are random by design. A certificate is about a
    fixed function of the input, and its bound needs votes that are independent of each other. The
    random numbers of arbitrary code are neither: they are shared by the rows of a batch, and they
    depend on everything that was computed before. Derived from the noisy input itself, they make
    the classifier a fixed function of its input, so the theory holds as it is. Every noisy input is
    new, so its random numbers are new as well. Noisy inputs are a function of seed, id and sample
    number, and so are the votes: a run can be resumed and audited.

    It seeds the global generators of torch, NumPy and Python and restores the state of those on the
    CPU afterwards. A generator that the model owns is not seeded: the check before a run refuses
    such a model. Rows are classified one at a time, because a batch shares its random numbers. This
    is slow for small networks.

    Args:
        model: A module or function from batches to logits or labels that takes its random numbers
            from the global generators.
        classes: The number of classes, if it is known. It helps to find the logits in a tuple or a
            dictionary.

    >>> noisy = SeededRows(lambda x: x + torch.randn_like(x))
    >>> x = torch.rand(4, 2)
    >>> bool(torch.equal(noisy(x), noisy(x))), bool(torch.equal(noisy(x)[2:], noisy(x[2:])))
    (True, True)
    """

    def __init__(self, model: Network, *, classes: int | None = None) -> None:
        super().__init__()
        self.model = model
        self.classes = classes

    def forward(self, x: Tensor) -> Tensor:
        """The logits or labels for a batch.

        Args:
            x: A batch of inputs.
        """
        outputs = []
        with _own_random_state():
            for row, content in zip(x, x.detach().cpu(), strict=True):
                _seed(content)
                output = self.model(row[None])
                outputs.append(find_logits(output, classes=self.classes, device=x.device))
        return torch.cat(outputs)


def unseeded(model: Network) -> Network:
    """A model without the seeds for its rows."""
    return model.model if isinstance(model, SeededRows) else model


def _seed(row: Tensor) -> None:
    digest = hashlib.sha256(row.contiguous().flatten().view(torch.uint8).numpy().data).digest()
    torch.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    # This is the generator that models use.
    np.random.seed(int.from_bytes(digest[8:12], "little"))  # noqa: NPY002
    random.seed(digest)


@contextmanager
def _own_random_state() -> Iterator[None]:
    """Restore the state of all global generators afterwards."""
    numpy_state = np.random.get_state()  # noqa: NPY002
    python_state = random.getstate()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
