"""Train base classifiers and denoisers for smoothing.

>>> import smoothcert as sc
>>> from smoothcert.training import Augmentation, Recipe
>>> recipe = Recipe("fashion-cnn", Augmentation(0.25), epochs=20)
>>> training = sc.load_dataset("fashion-mnist:DIR", train=True)  # doctest: +SKIP
>>> validation = sc.load_dataset("fashion-mnist:DIR")  # doctest: +SKIP
>>> trained = sc.train(recipe, training, validation, out="runs/mine")  # doctest: +SKIP
"""

from smoothcert.training.loop import Epoch, Trained, train
from smoothcert.training.methods import method_named
from smoothcert.training.methods.augmentation import Augmentation
from smoothcert.training.methods.base import Method
from smoothcert.training.methods.consistency import Consistency
from smoothcert.training.methods.denoiser import Denoising
from smoothcert.training.methods.finetune import Finetune
from smoothcert.training.methods.macer import Macer
from smoothcert.training.methods.smoothadv import SmoothAdv
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
