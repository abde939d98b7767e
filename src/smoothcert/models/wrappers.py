"""What stands around networks inside of a classifier: other sizes, fixed random numbers, means.

Each is a fixed function of its input, so it is certified as any other classifier.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn.functional import interpolate

from smoothcert import _check
from smoothcert.errors import InvalidInput, setting, warn
from smoothcert.models.base import Classifier, Network, find_logits

_BILINEAR = "bilinear"
_GREY = (0.299, 0.587, 0.114)
"""The shares of red, green and blue in a grey value (ITU-R BT.601), as Pillow has them."""


@dataclass(frozen=True)
class Fit:
    """Brings a batch of pictures to the size and the channels that a network takes.

    Both are changed inside of the classifier, after the noise and the denoiser. So sigma and radii
    keep the units of the picture that the user has.

    Args:
        size: Height and width; None keeps them.
        mode: The filter: bilinear or bicubic. Both are antialiased, as those of Pillow and
            torchvision.
        channels: 3 repeats a grey picture, 1 makes a colour picture grey; None keeps them.
    """

    size: tuple[int, int] | None
    mode: str
    channels: int | None

    @classmethod
    def of(cls, resize: str | None, channels: int | None) -> Fit | None:
        """What the settings ask for; None if that is nothing.

        >>> Fit.of("224,bicubic", None)
        Fit(size=(224, 224), mode='bicubic', channels=None)
        """
        if resize is None and channels is None:
            return None
        if channels is not None:
            channels = _check.one_of("channels", _check.whole("channels", channels), (1, 3))
        if resize is None:
            return cls(None, _BILINEAR, channels)
        size, _, mode = resize.partition(",")
        height_and_width = _check.size("resize", size)
        mode = _check.one_of("the filter of resize", mode or _BILINEAR, (_BILINEAR, "bicubic"))
        return cls(height_and_width, mode, channels)

    @property
    def resize(self) -> str | None:
        """The size and the filter in the shortest form, as in "224" or "224x160,bicubic"."""
        if self.size is None:
            return None
        height, width = self.size
        size = f"{height}" if height == width else f"{height}x{width}"
        return size if self.mode == _BILINEAR else f"{size},{self.mode}"

    def __call__(self, x: Tensor) -> Tensor:
        """The pictures as the network takes them.

        Args:
            x: Pictures of shape (batch, channels, height, width).
        """
        if self.channels == 1:
            x = grey(x)
        if self.size is not None:
            x = resized(x, self.size, self.mode)
        return x.expand(-1, 3, -1, -1) if self.channels == 3 else x

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that a picture of a shape gets."""
        has_channels = self.channels is None or shape[0] in (1, 3)
        if len(shape) != 3 or not has_channels:
            raise InvalidInput(
                "not-pictures",
                "{setting} is for pictures of shape (channels, height, width), not for {shape}",
                setting=setting("resize" if self.channels is None else "channels"),
                shape=shape,
            )
        channels, *size = shape
        return (self.channels or channels, *(self.size or size))


@fx.wrap
def resized(x: Tensor, size: tuple[int, int], mode: str) -> Tensor:
    """Pictures of another size. The filters need at least float32."""
    wide = x if x.dtype == torch.float64 else x.float()
    return interpolate(wide, size, mode=mode, antialias=True).to(x.dtype)


@fx.wrap
def grey(x: Tensor) -> Tensor:
    """Colour pictures in grey. Grey ones stay."""
    if x.shape[1] == 1:
        return x
    shares = x.new_tensor(_GREY).view(3, 1, 1)
    return (x * shares).sum(1, keepdim=True)


class FittedModule(nn.Module):
    """A network behind a `Fit`."""

    def __init__(self, fit: Fit, network: nn.Module) -> None:
        super().__init__()
        self.fit = fit
        self.network = network
        self.own_dtype = getattr(network, "own_dtype", None)

    def forward(self, x: Tensor) -> Any:
        """What the network returns.

        Args:
            x: Pictures as the user has them.
        """
        return self.network(self.fit(x))


@dataclass(frozen=True)
class FittedFunction:
    """A function behind a `Fit`. It may do anything, so it is no module that could be traced."""

    fit: Fit
    function: Network

    def __call__(self, x: Tensor) -> Any:
        """What the function returns."""
        return self.function(self.fit(x))


def fitted(classifier: Classifier, fit: Fit) -> Classifier:
    """A classifier that brings its inputs to the size and the channels that it takes."""
    module = classifier.module
    if isinstance(module, nn.Module):
        return replace(classifier, module=FittedModule(fit, module))
    return replace(classifier, module=FittedFunction(fit, module))


class Ensemble(nn.Module):
    """The mean of the logits of several networks.

    Args:
        members: The networks.
    """

    def __init__(self, members: Sequence[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        """The mean of the logits for a batch."""
        return torch.stack([_logits(member(x), x) for member in self.members]).mean(0)


class LocalMean(nn.Module):
    """The mean of the logits of a network over inputs with small noises, as in DiffSmooth.

    The noises are the same for every input. So the mean is a fixed function of the input, and the
    votes depend neither on chance nor on the batch.

    Args:
        classifier: The network.
        noises: The noises, of shape (number, *shape of an input).
    """

    noises: Tensor

    def __init__(self, classifier: nn.Module, noises: Tensor) -> None:
        super().__init__()
        self.classifier = classifier
        self.own_dtype = getattr(classifier, "own_dtype", None)
        self.register_buffer("noises", noises)

    def forward(self, x: Tensor) -> Tensor:
        """The mean of the logits for a batch."""
        copies = (x + self.noises[:, None]).flatten(0, 1)
        logits = _logits(self.classifier(copies), x)
        mean: Tensor = logits.unflatten(0, (len(self.noises), -1)).mean(0)
        return mean


def _logits(output: Any, x: Tensor) -> Any:
    """The logits in the output of a network. A symbol, while the network is traced, stays."""
    if isinstance(output, fx.Proxy):
        return output
    logits = find_logits(output, classes=None, device=x.device)
    if not logits.is_floating_point():
        raise InvalidInput(
            "mean-of-labels", "the model returns labels, and only logits have a mean: return logits"
        )
    return logits


def ensemble(classifiers: Sequence[Classifier]) -> Classifier:
    """Several classifiers as one, which averages their logits.

    Args:
        classifiers: Classifiers of the same classes and inputs. What is known of the first one's
            training is taken to hold for all, and a warning says if it does not.
    """
    first = classifiers[0]
    trained = list(dict.fromkeys(map(_training, classifiers)))
    if len(trained) > 1:
        warn(
            "other-training",
            "the networks of the ensemble were trained differently: {trained}",
            trained="; ".join(trained),
        )
    members = []
    for classifier in classifiers:
        module = _module_of(classifier, "weights")
        if _kind(classifier) != _kind(first):
            raise InvalidInput(
                "other-members",
                "an ensemble needs networks of one kind: {first}, but {other}",
                first=_kind(first),
                other=_kind(classifier),
            )
        members.append(module)
    hashes = " ".join(str(each.weights_hash) for each in classifiers)
    weights_hash = hashlib.sha256(f"the mean of {hashes}".encode()).hexdigest()
    return replace(first, module=Ensemble(members).eval(), weights_hash=weights_hash)


def _training(classifier: Classifier) -> str:
    """The noise in training, the transformation and the denoiser, in words."""
    words = [_noise_in_training(classifier)]
    if classifier.trained_transformation is not None:
        words.append(f"for {classifier.trained_transformation.norm}")
    if classifier.trained_denoiser is not None:
        words.append(f"behind the denoiser {classifier.trained_denoiser[:8]}")
    return " ".join(words)


def _noise_in_training(classifier: Classifier) -> str:
    if classifier.trained_noise is not None:
        return f"with {classifier.trained_noise}"
    sigma = classifier.trained_sigma
    return "with unknown noise" if sigma is None else f"with noise of deviation {sigma:g}"


def _kind(classifier: Classifier) -> str:
    """The name, inputs and classes of a network, in words."""
    return f"{classifier.name} for {classifier.classes} classes and inputs {classifier.input_shape}"


def locally_smoothed(classifier: Classifier, noises: Tensor, local: str) -> Classifier:
    """A classifier that averages its logits over small noises around its input.

    Args:
        classifier: The classifier.
        noises: The noises, of shape (number, *shape of an input).
        local: The setting, in words.
    """
    network = _module_of(classifier, "local")
    module = LocalMean(network, noises)
    module.training = network.training
    return classifier.inside(module, f"with local noises {local}")


def _module_of(classifier: Classifier, option: str) -> nn.Module:
    """The module of a classifier. A function may return labels, which have no mean."""
    if isinstance(classifier.module, nn.Module):
        return classifier.module
    raise InvalidInput(
        "not-a-module",
        "{model} is a function, and {option} needs a torch module that returns logits",
        model=classifier.name,
        option=setting(option),
    )


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


def seeded_by_row(classifier: Classifier) -> Classifier:
    """A random classifier as a fixed function. Without the seeds, it is another classifier."""
    seeded = SeededRows(classifier.module, classes=classifier.classes)
    return classifier.inside(seeded, "seeded by row")


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
