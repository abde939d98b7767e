"""From what a model returns to one class per row, also for models that are random by design."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.errors import InvalidInput, ModelFailed


def find_logits(output: Any, *, classes: int | None, device: torch.device) -> Tensor:
    """The logits or labels in the output of a model: a tensor, an array, a tuple, a dictionary or a `ModelOutput`.

    A dictionary or an object with the entry `logits`, such as a `ModelOutput` of Hugging Face, gives this entry. Other
    dictionaries, tuples and lists give the only entry that can be logits: the only one at all, or the only one of shape
    (batch, classes).

    Raises:
        InvalidInput: There are no logits, or several entries may be the logits.
    """
    if isinstance(output, Tensor):
        return output if output.layout == torch.strided else output.to_dense()
    if isinstance(output, np.ndarray):
        if output.dtype.kind not in "biuf":
            raise InvalidInput(f"the model must return logits or labels, got an array of {output.dtype}")
        return torch.from_numpy(np.ascontiguousarray(output)).to(device)
    parts = enumerate(output) if isinstance(output, (tuple, list)) else output if isinstance(output, Mapping) else ()
    entries: dict[Any, Any] = dict(parts)
    logits = entries.get("logits", getattr(output, "logits", None))
    if isinstance(logits, (Tensor, np.ndarray)):
        return find_logits(logits, classes=classes, device=device)
    if not entries:
        raise InvalidInput(f"the model must return a tensor of logits or labels, got {type(output).__name__}")
    tensors = {key: value for key, value in entries.items() if isinstance(value, (Tensor, np.ndarray))}
    fitting = [v for v in tensors.values() if v.ndim == 2 and classes in (None, v.shape[1])]
    if len(tensors) == 1 or len(fitting) == 1:
        return find_logits(fitting[0] if fitting else next(iter(tensors.values())), classes=classes, device=device)
    found = ", ".join(f"{k}: {described(v)}" for k, v in entries.items())
    raise InvalidInput(
        f"the model returns a {type(output).__name__} ({found}), and it is unclear which part is the logits: return "
        'the logits alone, or name them, as in {"logits": ...}'
    )


class LabelClassifier(nn.Module):
    """Turns the output of a classifier into one class per row.

    A row with NaN, with +inf or with nothing but -inf gets the number `classes`, which is not a class: it is no vote. A
    single -inf is the logarithm of the probability 0, and another class can win.

    Args:
        module: The classifier: a batch of inputs to logits of shape (batch, classes) or to labels of shape (batch,),
            alone or in a form that `find_logits` takes.
        classes: The number of classes.
    """

    def __init__(self, module: Callable[[Tensor], Tensor], classes: int) -> None:
        super().__init__()
        self.module = module
        self.classes = classes

    def outputs(self, x: Tensor) -> Tensor:
        """The logits or labels of each row."""
        return find_logits(self.module(x), classes=self.classes, device=x.device)

    def forward(self, x: Tensor) -> Tensor:
        """The class of each row, as integers of shape (batch,)."""
        output = self.outputs(x)
        if tuple(output.shape) not in ((len(x),), (len(x), self.classes)):
            raise ModelFailed(
                f"the model returns shape {tuple(output.shape)} for {len(x)} inputs and {self.classes} classes"
            )
        if output.ndim == 1:
            return torch.where((output >= 0) & (output < self.classes), output.long(), self.classes)
        return torch.where(has_winner(output), output.argmax(1), self.classes)


def has_winner(logits: Tensor) -> Tensor:
    """Whether a class wins in each row: the largest logit is finite. The largest of NaN and anything else is NaN."""
    return logits.amax(1).isfinite()


def described(value: Any) -> str:
    """What a network returned, in words: "float32 of shape (8, 10)", or the type of what is no tensor."""
    if not isinstance(value, (Tensor, np.ndarray)):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"


class SeededRows(nn.Module):
    """A random classifier as a fixed function: for each row, the random generators are seeded with a hash of the row.

    Diffusion denoisers, randomised defences and dropout at test time are random by design. A certificate is about a
    fixed function of the input, and its bound needs votes that are independent of each other. The random numbers of
    arbitrary code are neither: they are shared by the rows of a batch, and they depend on everything that was computed
    before. Derived from the noisy input itself, they make the classifier a fixed function of its input, so the theory
    holds as it is. Every noisy input is new, so its random numbers are new as well. Noisy inputs are a function of
    seed, id and sample number, and so are the votes: a run can be resumed and audited.

    It seeds the global generators of torch, NumPy and Python and restores the state of those on the CPU afterwards. A
    generator that the model owns is not seeded: the check before a run refuses such a model. Rows are classified one at
    a time, because a batch shares its random numbers. This is slow for small networks.

    Args:
        model: A module or function from batches to logits or labels that takes its random numbers from the global
            generators.
        classes: The number of classes, if it is known. It helps to find the logits in a tuple or a dictionary.

    >>> noisy = SeededRows(lambda x: x + torch.randn_like(x))
    >>> x = torch.rand(4, 2)
    >>> bool(torch.equal(noisy(x), noisy(x))), bool(torch.equal(noisy(x)[2:], noisy(x[2:])))
    (True, True)
    """

    def __init__(self, model: Callable[[Tensor], Any], *, classes: int | None = None) -> None:
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
                outputs.append(find_logits(self.model(row[None]), classes=self.classes, device=x.device))
        return torch.cat(outputs)


def _seed(row: Tensor) -> None:
    digest = hashlib.sha256(row.contiguous().flatten().view(torch.uint8).numpy().data).digest()
    torch.manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    np.random.seed(int.from_bytes(digest[8:12], "little"))  # noqa: NPY002 (this is the generator that models use)
    random.seed(digest)


@contextmanager
def _own_random_state() -> Iterator[None]:
    """Restore the state of all global generators afterwards."""
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
