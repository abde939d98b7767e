r"""A training method of your own: stability training (Li et al. 2019).

A method is a frozen dataclass with a name, constants and the loss for a batch. An option of `train` that has the name
of a constant sets it. Run this file twice: the second time it is complete already.

    python examples/own_training.py
    smoothcert --import examples/own_training.py train --method stability --weight 2 --arch fashion-cnn \
        --data fashion-mnist --sigma 0.25 --epochs 2 --out runs/own-training
"""

from dataclasses import dataclass
from typing import ClassVar

from torch.nn.functional import cross_entropy

import smoothcert as sc
from smoothcert.training import Method, Objective, Recipe


@dataclass(frozen=True)
class Stability(Method):
    """The cross-entropy without noise, plus lambda times the cross-entropy between F(x) and F(x + noise)."""

    name: ClassVar[str] = "stability"
    sigma: float
    weight: float = 2.0

    def objective(self, module, x, labels, epoch):
        """The loss for a batch, and the logits of noisy inputs."""
        clean = module(x).float()
        noisy = self.noisy_logits(module, x)
        stability = cross_entropy(noisy[0], clean.softmax(-1))
        return Objective(cross_entropy(clean, labels) + self.weight * stability, noisy)


if __name__ == "__main__":
    data = sc.load_dataset("fashion-mnist")  # 500 images; training on all 60,000 takes minutes
    recipe = Recipe("fashion-cnn", Stability(0.25), epochs=2, batch=100)
    trained = sc.train(recipe, data, data, out="runs/own-training")
    print(f"{trained.accuracy:.1%} of the noisy training images right")
