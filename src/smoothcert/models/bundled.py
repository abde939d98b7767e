"""The bundled networks, with bundled weights or weights from a file."""

from __future__ import annotations

from pathlib import Path

from smoothcert.errors import InvalidInput, setting
from smoothcert.models.architectures import ARCHITECTURES, NAMED_WEIGHTS, build, canonical_name
from smoothcert.models.base import Classifier, Weights, fresh_weights
from smoothcert.models.checkpoint import Checkpoint, read_checkpoint

ASSETS = Path(__file__).parents[1] / "assets"
_DEFAULT_CLASSES = 10


def load(name: str, *, weights: Weights, classes: int | None) -> Classifier:
    """A bundled network; see `Source.load`."""
    architecture = _architecture(name)
    shape: tuple[int, ...] = ARCHITECTURES[architecture].input_shape
    if isinstance(weights, Checkpoint) and weights.noise is not None:
        shape = weights.noise.draw.output_shape(shape)
    classes = classes or _DEFAULT_CLASSES
    with fresh_weights():
        module = build(architecture, classes=classes, channels=shape[0])
    return Classifier(module=module, classes=classes, name=name, input_shape=shape)


def default_weights(name: str, sigma: float | None) -> Checkpoint:
    """The bundled weights whose training noise is closest to `sigma`; by default those with the least noise."""
    dashed, architecture = _dashed(name), _architecture(name)
    if dashed in NAMED_WEIGHTS:
        return read_checkpoint(ASSETS / f"{dashed}.safetensors")
    found = ASSETS.glob(f"{architecture}-[0-9]*.safetensors")
    trained = {float(path.stem.removeprefix(f"{architecture}-")): path for path in found}
    if not trained:
        raise InvalidInput(
            f"{architecture} comes without weights: give {setting('weights', 'FILE')}, or "
            f"{setting('weights', 'none')} for an untrained network"
        )
    return read_checkpoint(trained[min(sorted(trained), key=lambda trained_sigma: abs(trained_sigma - (sigma or 0)))])


def _dashed(name: str) -> str:
    return name.replace("_", "-").lower()


def _architecture(name: str) -> str:
    return canonical_name(NAMED_WEIGHTS.get(_dashed(name), name))
