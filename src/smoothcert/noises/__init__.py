"""Noises: how an input is randomised, and which radius a probability proves. One file per noise.

To add one, copy `gaussian.py` (or see `examples/own_noise.py` for a noise outside of this package).
"""

from smoothcert.noises.base import Additive, Noise
from smoothcert.noises.gaussian import Gaussian

__all__ = ["Additive", "Gaussian", "Noise"]
