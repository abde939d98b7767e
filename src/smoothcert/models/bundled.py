"""The bundled networks, with bundled weights or weights from a file."""

from __future__ import annotations

from pathlib import Path

from smoothcert.errors import InvalidInput
from smoothcert.models.architectures import ARCHITECTURES, NAMED_WEIGHTS, build, canonical_name
from smoothcert.models.base import Classifier, Weights, fresh_weights
from smoothcert.models.checkpoint import Checkpoint, read_checkpoint
from smoothcert.models.identity import state_hash

ASSETS = Path(__file__).parents[1] / "assets"
_DEFAULT_CLASSES = 10


def load(name: str, *, weights: Weights, classes: int | None, sigma: float | None) -> Classifier:
    """A bundled network; see `Source.load`."""
    dashed = name.replace("_", "-").lower()
    architecture = canonical_name(NAMED_WEIGHTS.get(dashed, dashed))
    if weights == "default" and dashed in NAMED_WEIGHTS:
        weights = read_checkpoint(ASSETS / f"{dashed}.safetensors")
    elif weights == "default":
        weights = _bundled_weights(architecture, sigma)
    shape: tuple[int, ...] = ARCHITECTURES[architecture].input_shape
    noise = weights.noise if isinstance(weights, Checkpoint) else None
    if noise is not None:
        shape = noise.draw.output_shape(shape)
    with fresh_weights():
        module = build(architecture, classes=classes or _DEFAULT_CLASSES, channels=shape[0])
    if isinstance(weights, Checkpoint):
        weights.load_into(module, name=name)
    return Classifier(
        module=module.eval(),
        classes=classes or _DEFAULT_CLASSES,
        name=name,
        input_shape=shape,
        weights_hash=state_hash(module),
        trained_sigma=weights.sigma if isinstance(weights, Checkpoint) else None,
        trained_noise=noise,
    )


def _bundled_weights(architecture: str, sigma: float | None) -> Checkpoint:
    """The bundled weights whose training noise is closest to `sigma`; by default those with the least noise."""
    found = ASSETS.glob(f"{architecture}-[0-9]*.safetensors")
    trained = {float(path.stem.removeprefix(f"{architecture}-")): path for path in found}
    if not trained:
        raise InvalidInput(
            f'{architecture} comes without weights: give weights=FILE, or weights="none" for an untrained network'
        )
    return read_checkpoint(trained[min(sorted(trained), key=lambda trained_sigma: abs(trained_sigma - (sigma or 0)))])
