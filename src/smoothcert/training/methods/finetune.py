"""Fine-tuning of a classifier on denoised inputs (Carlini et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothcert.errors import InvalidInput, either, setting
from smoothcert.training.methods.augmentation import Augmentation
from smoothcert.training.trainee import Start, Trainee


@dataclass(frozen=True)
class Finetune(Augmentation):
    """Minimise the cross-entropy of a trained classifier at D(x + delta), where the denoiser D stays fixed.

    This is Gaussian augmentation that starts from a trained classifier, with a lower learning rate. The other methods
    can also train behind a denoiser.
    """

    name: ClassVar[str] = "finetune"
    learning_rate: ClassVar[float] = 0.01

    def trainee(self, start: Start) -> Trainee:
        """The classifier behind the denoiser; see `Method.trainee`."""
        if start.classifier is None:
            model = either("classifier=", "--model or --weights")
            raise InvalidInput(f"method finetune needs a classifier to start from: give {model}")
        if start.denoiser is None:
            raise InvalidInput(f"method finetune needs a denoiser: give {setting('denoiser')}")
        return super().trainee(start)
