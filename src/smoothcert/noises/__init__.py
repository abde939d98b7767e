"""Noises: how an input is randomised, and which radius a probability proves. One file per noise.

To add one, copy `gaussian.py` (or see `examples/own_noise.py` for a noise outside of this package).
"""

from smoothcert.noises.ablation import Ablation
from smoothcert.noises.base import Noise
from smoothcert.noises.brightness import Brightness
from smoothcert.noises.discrete import Discrete
from smoothcert.noises.draws import Additive, Draw
from smoothcert.noises.gaussian import Gaussian
from smoothcert.noises.grid_gaussian import GridGaussian
from smoothcert.noises.laplace import Laplace
from smoothcert.noises.patches import Bands, Blocks
from smoothcert.noises.splitting import Splitting
from smoothcert.noises.translation import Translation
from smoothcert.noises.uniform import Uniform

__all__ = [
    "Ablation",
    "Additive",
    "Bands",
    "Blocks",
    "Brightness",
    "Discrete",
    "Draw",
    "Gaussian",
    "GridGaussian",
    "Laplace",
    "Noise",
    "Splitting",
    "Translation",
    "Uniform",
]
