"""Denoisers, which make it possible to smooth a classifier that was never trained with noise."""

from smoothcert.denoisers.base import Denoiser
from smoothcert.denoisers.denoised import Denoised, FixedSigma
from smoothcert.denoisers.unet import UNETS, UNet, build_unet

__all__ = ["UNETS", "Denoised", "Denoiser", "FixedSigma", "UNet", "build_unet"]
