"""Fine-tuning of a classifier on denoised inputs (Carlini et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothcert.errors import InvalidInput
from smoothcert.training.methods.gaussian import Gaussian
from smoothcert.training.trainee import Start, Trainee


@dataclass(frozen=True)
class Finetune(Gaussian):
    """Minimise the cross-entropy of a trained classifier at D(x + delta), where the denoiser D stays fixed.

    This is Gaussian augmentation that starts from a trained classifier, with a lower learning rate. The other methods
    can also train behind a denoiser.
    """

    name: ClassVar[str] = "finetune"
    learning_rate: ClassVar[float] = 0.01

    def trainee(self, start: Start) -> Trainee:
        """The classifier behind the denoiser; see `Method.trainee`."""
        if start.classifier is None or start.denoiser is None:
            missing = "classifier to start from" if start.classifier is None else "denoiser"
            raise InvalidInput(f"method finetune needs a {missing}: give {missing.split()[0]}=")
        return super().trainee(start)
