"""Denoisers, which make it possible to smooth a classifier that was never trained with noise."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from smoothcert.errors import InvalidInput
from smoothcert.models.base import evaluation_mode
from smoothcert.models.checkpoint import Checkpoint, read_checkpoint
from smoothcert.models.denoisers.base import (
    Denoised,
    Denoiser,
    FixedSigma,
    ModuleDenoiser,
    compose,
    denoised,
)
from smoothcert.models.denoisers.unet import UNETS, UNet, build_unet
from smoothcert.models.load import make, names_code

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


def load_denoiser(spec: str | Path | nn.Module, *, stochastic: bool = False) -> Denoiser:
    """Load a denoiser.

    Args:
        spec: A checkpoint of `smoothcert train --method denoiser`, `hf:FOLDER` for a diffusers
            `UNet2DModel`, `openai:FILE` for a checkpoint of improved-diffusion or guided-diffusion,
            `package.module:factory` or `file.py:function` for code of your own, or a module: a
            `Denoiser`, or any other module from noisy inputs to estimates of the clean ones.
        stochastic: Whether the denoiser is random by design. A module of your own code then stays in the mode in which
            it is returned. Otherwise it is put into evaluation mode, as all others.

    Raises:
        InvalidInput: There is no such denoiser, or it cannot be used.
        MissingExtra: The source needs a package that is not installed.
    """
    if isinstance(spec, Denoiser):
        return spec
    if isinstance(spec, nn.Module):
        return ModuleDenoiser(spec)
    if not isinstance(spec, (str, Path)) or not str(spec):
        hint = ": wrap the function in a module" if callable(spec) else f", got {spec!r}"
        raise InvalidInput(
            f"denoiser must be a weights file, hf:FOLDER, file.py:function or a module{hint}"
        )
    prefix, colon, name = (spec := str(spec)).partition(":")
    if prefix == "hf" and colon:
        from smoothcert.models.denoisers import diffusion

        denoiser: Denoiser = diffusion.load(name).eval()
    elif prefix == "openai" and colon:
        from smoothcert.models.denoisers import openai

        denoiser = openai.load(name).eval()
    elif not names_code(spec):
        denoiser = _from_checkpoint(read_checkpoint(spec)).eval()
    else:
        spec, made = make(spec, "denoiser")
        if not isinstance(made, nn.Module):
            raise InvalidInput(f"{spec} returned a {type(made).__name__}: expected a torch module")
        if not stochastic:
            evaluation_mode(made)
        denoiser = load_denoiser(made)
    denoiser.name = spec
    return denoiser


def _from_checkpoint(checkpoint: Checkpoint) -> Denoiser:
    """A bundled denoiser with its trained weights."""
    name, shape, sigmas = checkpoint.architecture, checkpoint.shape, checkpoint.sigmas
    if checkpoint.method != "denoiser" or name not in UNETS or shape is None or sigmas is None:
        raise InvalidInput(
            f"{checkpoint.path} is not a denoiser: give the weights.safetensors that the training of a denoiser writes"
        )
    denoiser = build_unet(name, shape=shape, sigmas=sigmas)
    checkpoint.load_into(denoiser, name=name)
    return denoiser
