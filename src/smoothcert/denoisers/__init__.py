"""Denoisers, which make it possible to smooth a classifier that was never trained with noise."""

from smoothcert.denoisers.base import Denoiser, FixedSigma
from smoothcert.denoisers.denoised import Denoised, compose, denoised
from smoothcert.denoisers.load import load_denoiser
from smoothcert.denoisers.unet import UNETS, UNet, build_unet

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
