"""Noises: how an input is randomised, and which radius a probability proves. One file per family.

To add one, copy `gaussian.py` (or see `examples/own_noise.py` for a noise outside of this package).
"""

from smoothcert.noises.base import Additive as Additive
from smoothcert.noises.base import Draw as Draw
from smoothcert.noises.base import Noise as Noise
from smoothcert.noises.gaussian import Brightness as Brightness
from smoothcert.noises.gaussian import Gaussian as Gaussian
from smoothcert.noises.gaussian import GridGaussian as GridGaussian
from smoothcert.noises.gaussian import Translation as Translation
from smoothcert.noises.l0 import Ablation as Ablation
from smoothcert.noises.l0 import Discrete as Discrete
from smoothcert.noises.l1 import Laplace as Laplace
from smoothcert.noises.l1 import Splitting as Splitting
from smoothcert.noises.l1 import Uniform as Uniform
from smoothcert.noises.patches import Bands as Bands
from smoothcert.noises.patches import Blocks as Blocks
