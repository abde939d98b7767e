"""Train base classifiers and denoisers for smoothing.

>>> import smoothcert as sc
>>> from smoothcert.training import Augmentation, Recipe
>>> recipe = Recipe("fashion-cnn", Augmentation(0.25), epochs=20)
>>> training = sc.load_dataset("fashion-mnist:DIR", train=True)  # doctest: +SKIP
>>> validation = sc.load_dataset("fashion-mnist:DIR")  # doctest: +SKIP
>>> trained = sc.train(recipe, training, validation, out="runs/mine")  # doctest: +SKIP
"""

from smoothcert.training.loop import Epoch, Trained, train
from smoothcert.training.methods import (
    Augmentation,
    Consistency,
    Denoising,
    Finetune,
    Macer,
    Method,
    SmoothAdv,
    method_named,
)
from smoothcert.training.recipe import Recipe

__all__ = [
    "Augmentation",
    "Consistency",
    "Denoising",
    "Epoch",
    "Finetune",
    "Macer",
    "Method",
    "Recipe",
    "SmoothAdv",
    "Trained",
    "method_named",
    "train",
]
