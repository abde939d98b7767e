"""Denoisers, which make it possible to smooth a classifier that was never trained with noise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

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

_SOURCES = {"hf": "diffusion:load", "openai": "openai:load"}
"""Prefixes, and the module and function that loads such a denoiser."""


def load_denoiser(spec: str | Path | nn.Module, *, stochastic: bool = False) -> Denoiser:
    """Load a denoiser.

    Args:
        spec: A checkpoint of `smoothcert train --method denoiser`, `hf:FOLDER` for a diffusers
            `UNet2DModel`, `openai:FILE` for a checkpoint of improved-diffusion or guided-diffusion,
            `package.module:factory` or `file.py:function` for code of your own, or a module: a
            `Denoiser`, or any other module from noisy inputs to estimates of the clean ones.
        stochastic: Whether the denoiser is random by design. A module of your own code then stays
            in the mode in which it is returned. Otherwise it is put into evaluation mode, as all
            others.

    Raises:
        InvalidInput: There is no such denoiser, or it cannot be used.
        MissingExtra: The source needs a package that is not installed.
    """
    if isinstance(spec, Denoiser):
        return spec
    if isinstance(spec, nn.Module):
        return ModuleDenoiser(spec)
    if not isinstance(spec, (str, Path)) or not str(spec):
        raise InvalidInput(
            "not-a-denoiser",
            "denoiser must be a weights file, hf:FOLDER, file.py:function or a module{hint}",
            hint=": wrap the function in a module" if callable(spec) else f", got {spec!r}",
        )
    name = str(spec)
    prefix, _, place = name.partition(":")
    if prefix in _SOURCES and place:
        load: Callable[[str], Denoiser] = resolve_name(f"{__name__}.{_SOURCES[prefix]}")
        denoiser = load(place).eval()
    elif names_code(name):
        name, module = make(name, "denoiser")
        denoiser = _from_code(name, module, stochastic=stochastic)
    else:
        denoiser = _from_checkpoint(read_checkpoint(name)).eval()
    denoiser.name = name
    return denoiser


def _from_code(name: str, module: Any, *, stochastic: bool) -> Denoiser:
    """A denoiser that a function of the user returned."""
    if not isinstance(module, nn.Module):
        raise InvalidInput(
            "returned-no-module",
            "{name} returned a {kind}: expected a torch module",
            name=name,
            kind=type(module).__name__,
        )
    if not stochastic:
        evaluation_mode(module)
    return load_denoiser(module)


def _from_checkpoint(checkpoint: Checkpoint) -> Denoiser:
    """A bundled denoiser with its trained weights."""
    name = checkpoint.architecture
    shape = checkpoint.shape
    sigmas = checkpoint.sigmas
    if checkpoint.method != "denoiser" or name not in UNETS or shape is None or sigmas is None:
        raise InvalidInput(
            "not-a-denoiser-file",
            "{path} is not a denoiser: give the weights.safetensors that the training of a "
            "denoiser writes",
            path=checkpoint.path,
        )
    denoiser = build_unet(name, shape=shape, sigmas=sigmas)
    checkpoint.load_into(denoiser, name=name)
    return denoiser
