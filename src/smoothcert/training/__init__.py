"""Train base classifiers and denoisers for smoothing.

>>> import smoothcert as sc
>>> from smoothcert.training import Augmentation, Recipe
>>> recipe = Recipe("fashion-cnn", Augmentation(0.25), epochs=20)
>>> training = sc.load_dataset("fashion-mnist:DIR", train=True)  # doctest: +SKIP
>>> validation = sc.load_dataset("fashion-mnist:DIR")  # doctest: +SKIP
>>> trained = sc.train(recipe, training, validation, out="runs/mine")  # doctest: +SKIP
"""

from smoothcert.training.loop import Epoch as Epoch
from smoothcert.training.loop import Trained as Trained
from smoothcert.training.loop import train as train
from smoothcert.training.methods import method_named as method_named
from smoothcert.training.methods.augmentation import Augmentation as Augmentation
from smoothcert.training.methods.augmentation import Finetune as Finetune
from smoothcert.training.methods.base import Method as Method
from smoothcert.training.methods.base import Objective as Objective
from smoothcert.training.methods.catrs import CatRs as CatRs
from smoothcert.training.methods.consistency import Consistency as Consistency
from smoothcert.training.methods.denoiser import Denoising as Denoising
from smoothcert.training.methods.macer import Macer as Macer
from smoothcert.training.methods.smoothadv import SmoothAdv as SmoothAdv
from smoothcert.training.methods.smoothmix import SmoothMix as SmoothMix
from smoothcert.training.recipe import Recipe as Recipe
