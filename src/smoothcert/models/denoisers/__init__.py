"""Denoisers, which make it possible to smooth a classifier that was never trained with noise."""

from smoothcert.models.denoisers.base import Denoiser, FixedSigma
from smoothcert.models.denoisers.denoised import Denoised, compose, denoised
from smoothcert.models.denoisers.load import load_denoiser
from smoothcert.models.denoisers.unet import UNETS, UNet, build_unet

__all__ = [
    "UNETS",
    "Denoised",
    "Denoiser",
    "FixedSigma",
    "UNet",
    "build_unet",
    "compose",
    "denoised",
    "load_denoiser",
]
