"""The identity of the networks that a training run is given: the same run continues with the same networks.

Equal hashes do not show that the code of two networks is the same, so we also compare answers, as for certificates.
"""

from __future__ import annotations

import copy

import torch
from torch import nn

from smoothcert._agreement import Answer
from smoothcert.data.base import Dataset, first_readable
from smoothcert.models.base import Classifier, fresh_weights
from smoothcert.models.denoisers import Denoiser
from smoothcert.models.identity import answers
from smoothcert.training.methods import Method

_PROJECTIONS = 10


def network_answers(
    method: Method, data: Dataset, classifier: Classifier | None, denoiser: Denoiser | None
) -> dict[str, list[Answer] | None]:
    """The answers of the given networks to fixed inputs, which are the same every time.

    Returns:
        The answers of the "classifier" and of the "denoiser", if they are given; see `answers`.
    """
    networks: dict[str, nn.Module] = {}
    if classifier is None and denoiser is None:
        return {}
    shape = tuple(first_readable(data).shape)
    if method.noise is not None:
        shape = method.noise.draw.output_shape(shape)
    with fresh_weights():  # a network that is random by design also answers the same every time
        if classifier is not None and isinstance(classifier.module, nn.Module):
            networks["classifier"] = classifier.module
        if denoiser is not None:
            # A few projections of the output take the place of logits.
            projection = nn.Linear(torch.Size(shape).numel(), _PROJECTIONS, bias=False)
            weight = next(denoiser.parameters(), projection.weight)
            networks["denoiser"] = nn.Sequential(denoiser.at(method.sigma), nn.Flatten(), projection).to(weight.device)
        cpu = torch.device("cpu")
        return {
            name: answers(copy.deepcopy(network).eval(), torch.zeros(shape), cpu, torch.float32)
            for name, network in networks.items()
        }
