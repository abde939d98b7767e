"""Denoisers, which make it possible to smooth a classifier that was never trained with noise."""

from smoothcert.models.denoisers.base import Denoiser as Denoiser
from smoothcert.models.denoisers.base import FixedSigma as FixedSigma
from smoothcert.models.denoisers.denoised import Denoised as Denoised
from smoothcert.models.denoisers.denoised import compose as compose
from smoothcert.models.denoisers.denoised import denoised as denoised
from smoothcert.models.denoisers.load import load_denoiser as load_denoiser
from smoothcert.models.denoisers.unet import UNETS as UNETS
from smoothcert.models.denoisers.unet import UNet as UNet
from smoothcert.models.denoisers.unet import build_unet as build_unet
