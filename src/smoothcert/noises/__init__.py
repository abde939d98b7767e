"""Noises: how an input is randomised, and which radius a probability proves. One file per noise.

To add one, copy `gaussian.py` (or see `examples/own_noise.py` for a noise outside of this package).
"""

from smoothcert.noises.ablation import Ablation as Ablation
from smoothcert.noises.base import Noise as Noise
from smoothcert.noises.brightness import Brightness as Brightness
from smoothcert.noises.discrete import Discrete as Discrete
from smoothcert.noises.draws import Additive as Additive
from smoothcert.noises.draws import Draw as Draw
from smoothcert.noises.gaussian import Gaussian as Gaussian
from smoothcert.noises.grid_gaussian import GridGaussian as GridGaussian
from smoothcert.noises.laplace import Laplace as Laplace
from smoothcert.noises.patches import Bands as Bands
from smoothcert.noises.patches import Blocks as Blocks
from smoothcert.noises.splitting import Splitting as Splitting
from smoothcert.noises.translation import Translation as Translation
from smoothcert.noises.uniform import Uniform as Uniform
