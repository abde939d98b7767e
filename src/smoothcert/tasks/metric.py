"""`CertifiedAccuracy`: an estimate of certified accuracy during training.

Its methods are those of torchmetrics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert import _check
from smoothcert.data.base import check_labels
from smoothcert.data.inputs import as_input
from smoothcert.device.runtime import Runtime
from smoothcert.errors import InvalidInput
from smoothcert.models.base import Network, find_logits, in_evaluation_mode
from smoothcert.models.outputs import LabelClassifier
from smoothcert.noises import Noise
from smoothcert.plans import SingleDraw
from smoothcert.sampling.streams import check_seed, key_for
from smoothcert.smoothed import ReadySubject
from smoothcert.statistics.empirical_bayes import distribution, share_above


class CertifiedAccuracy:
    """Estimates certified accuracy from a few noisy copies of each input, in seconds.

    Call `update` with every batch of the validation data, `compute` at the end of the epoch, then
    `reset`. An estimate proves nothing, and says least about radii that need more than `samples`
    unanimous votes. Its noise is not that of `certify`, so a model that it selects can be certified
    with the same seed.

    Args:
        radii: The radii r.
        noise: The smoothing noise.
        samples: Noisy copies of each input.
        batch: Rows per forward pass.
        seed: The key of the noise.

    >>> from smoothcert import Gaussian
    >>> metric = CertifiedAccuracy([0, 0.25], Gaussian(0.25))
    >>> def halves(x):
    ...     return torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1)
    >>> x = torch.tensor([[1.0, 0.0], [0.55, 0.0], [0.0, 0.0]])
    >>> metric.update(halves, x, torch.tensor([1, 1, 1]))
    >>> {radius: round(share, 1) for radius, share in metric.compute().items()}
    {0.0: 0.7, 0.25: 0.3}
    """

    def __init__(
        self,
        radii: Sequence[float],
        noise: Noise,
        *,
        samples: int = 100,
        batch: int = 512,
        seed: int = 0,
    ) -> None:
        self.radii = _check.radii(radii)
        self.noise = noise
        self.samples = _check.whole("samples", samples, least=1)
        self.batch = _check.whole("batch", batch, least=1)
        self.seed = check_seed(seed)
        self._epoch = 0
        self._votes: list[int] = []

    def update(self, model: Network, x: Tensor, labels: Tensor | Sequence[int]) -> None:
        """Count the votes for the labels of a batch.

        Args:
            model: The model as it is now, from a batch to logits. It is put into evaluation mode
                for this call.
            x: Inputs, with a batch dimension. Bytes are divided by 255.
            labels: Their labels.
        """
        if len(x) != len(labels):
            raise InvalidInput(
                "not-one-label-each",
                "there must be one label for each of {inputs} inputs, got {labels}",
                inputs=len(x),
                labels=len(labels),
            )
        _check.unmasked("labels", labels)
        checked = [_check.whole("each label", y) for y in torch.as_tensor(labels).tolist()]
        if not (isinstance(x, Tensor) and x.is_floating_point()):
            x = as_input(x)  # bytes are divided by 255
        with in_evaluation_mode(model), torch.inference_mode():
            self._votes += self._votes_for(model, x, checked)

    def _votes_for(self, model: Network, x: Tensor, labels: list[int]) -> list[int]:
        """How many noisy copies of each input get its label."""
        device = x.device
        if isinstance(model, nn.Module):
            device = next(model.parameters(), x).device
        example = x[:1].to(device)
        logits = find_logits(model(example), classes=None, device=device)
        if logits.ndim != 2:
            raise InvalidInput(
                "not-logits",
                "the model must return logits (batch, classes), got {shape}",
                shape=tuple(logits.shape),
            )
        classes = logits.shape[1]
        check_labels(np.array(labels), classes=classes, name="the batch")
        dtype = str(example.dtype).removeprefix("torch.")
        shape = tuple(x.shape[1:])
        ready = ReadySubject(
            LabelClassifier(model, classes),
            Runtime(str(device), dtype, "none", self.batch),
            noise=self.noise.for_shape(shape),
            shape=shape,
            classes=classes,
            seed=key_for(self.seed, "metric", self._epoch),
            pad=False,
        )
        engine = ready.engine(SingleDraw(self.samples))
        first = len(self._votes)
        inputs = zip(range(first, first + len(x)), x, labels, strict=True)
        certificates = sorted(engine.certify(inputs), key=lambda certificate: certificate.id)
        return [c.looks[0].of(c.label) for c in certificates]

    def compute(self) -> dict[float, float]:
        """The estimated certified accuracy at each radius.

        It is the share of inputs whose p of the label is above what the radius needs, in the
        distribution of p that explains the votes of all inputs best. A prior for each input by
        itself would make large radii too rare.
        """
        if not self._votes:
            raise InvalidInput("no-votes", "there are no votes yet: call update first")
        needed = np.array([float(self.noise.probability(radius)) for radius in self.radii])
        weights = distribution(Counter((count, self.samples) for count in self._votes))
        return dict(zip(self.radii, share_above(needed, weights).tolist(), strict=True))

    def reset(self) -> None:
        """Forget all votes. The next epoch draws other noise."""
        self._votes.clear()
        self._epoch += 1
