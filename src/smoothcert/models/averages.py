"""Classifiers that average logits: ensembles, and local smoothing.

Both are fixed functions of their input, so they are certified as any other classifier.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from smoothcert.errors import InvalidInput, setting
from smoothcert.models.base import Classifier
from smoothcert.models.logits import find_logits


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
            training is taken to hold for all.
    """
    first = classifiers[0]
    members = []
    for classifier in classifiers:
        if not isinstance(classifier.module, nn.Module):
            raise _needs_module(classifier, "weights")
        if _kind(classifier) != _kind(first):
            raise InvalidInput(
                "other-members",
                "an ensemble needs networks of one kind: {first}, but {other}",
                first=_kind(first),
                other=_kind(classifier),
            )
        members.append(classifier.module)
    weights_hash = _hash("the mean of", *(str(each.weights_hash) for each in classifiers))
    return replace(first, module=Ensemble(members).eval(), weights_hash=weights_hash)


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
    if not isinstance(classifier.module, nn.Module):
        raise _needs_module(classifier, "local")
    weights_hash = classifier.weights_hash
    if weights_hash is not None:
        weights_hash = _hash(weights_hash, "with local noises", local)
    module = LocalMean(classifier.module, noises)
    module.training = classifier.module.training
    return replace(classifier, module=module, weights_hash=weights_hash)


def _needs_module(classifier: Classifier, option: str) -> InvalidInput:
    return InvalidInput(
        "not-a-module",
        "{model} is a function, and {option} needs a torch module that returns logits",
        model=classifier.name,
        option=setting(option),
    )


def _hash(*parts: str) -> str:
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()
