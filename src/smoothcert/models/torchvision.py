"""Models from torchvision: `torchvision:resnet50`."""

from __future__ import annotations

from smoothcert.errors import MissingExtra
from smoothcert.models.architectures import Normalize, Normalized
from smoothcert.models.base import (
    Classifier,
    Weights,
    fresh_weights,
    not_loaded,
    published_classes,
    unknown_name,
)
from smoothcert.models.checkpoint import Checkpoint
from smoothcert.models.identity import state_hash
from smoothcert.models.imports import without_compiler


def load(name: str, *, weights: Weights, classes: int | None, sigma: float | None) -> Classifier:
    """A classification model with the normalisation and the input size of its published weights; see `Source.load`."""
    spec = f"torchvision:{name}"
    try:
        with without_compiler():
            from torchvision import models
    except ImportError:
        raise MissingExtra(spec, "vision") from None

    known = models.list_models(module=models)
    if name not in known:
        raise unknown_name("torchvision", name, known)
    published = models.get_model_weights(name).DEFAULT
    categories = len(published.meta["categories"])
    if weights == "default":
        classes = published_classes(spec, classes, categories)
        try:
            # The builder below loads this file without `weights_only`, so a file that is not safe must fail here.
            published.get_state_dict(progress=False, check_hash=True, weights_only=True)
        except OSError as error:
            raise not_loaded(spec, error) from None
    classes = classes or categories
    with fresh_weights():
        network = models.get_model(name, weights=published if weights == "default" else None, num_classes=classes)
    if isinstance(weights, Checkpoint):
        weights.load_into(network, name=spec)
    transform = published.transforms()
    module = Normalized(Normalize(tuple(transform.mean), tuple(transform.std)), network).eval()
    return Classifier(
        module=module,
        classes=classes,
        name=spec,
        input_shape=(3, *(2 * transform.crop_size)),
        weights_hash=state_hash(module),
        trained_sigma=weights.sigma if isinstance(weights, Checkpoint) else None,
    )
