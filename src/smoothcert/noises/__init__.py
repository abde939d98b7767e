"""Noises: how an input is randomised, and which radius a probability proves. One file per family.

To add one, copy `gaussian.py` (or see `examples/own_noise.py` for a noise outside of this package).
"""

from smoothcert.noises.base import Additive, Noise
from smoothcert.noises.base import Draw as Draw
from smoothcert.noises.gaussian import Gaussian, GridGaussian
from smoothcert.noises.l0 import Ablation, Discrete
from smoothcert.noises.l1 import Laplace, Splitting, Uniform
from smoothcert.noises.patches import Bands, Blocks
from smoothcert.noises.resolvable import (
    Blur,
    Brightness,
    Contrast,
    ContrastBrightness,
    Translation,
)
from smoothcert.noises.transformed import Rotation, Zoom
from smoothcert.noises.transformed import Transformed as Transformed

__all__ = [  # what is public, as smoothcert.NAME
    "Ablation",
    "Additive",
    "Bands",
    "Blocks",
    "Blur",
    "Brightness",
    "Contrast",
    "ContrastBrightness",
    "Discrete",
    "Gaussian",
    "GridGaussian",
    "Laplace",
    "Noise",
    "Rotation",
    "Splitting",
    "Translation",
    "Uniform",
    "Zoom",
]
