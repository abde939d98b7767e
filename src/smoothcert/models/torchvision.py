"""Models from torchvision: `torchvision:resnet50`."""

from __future__ import annotations

from smoothcert.errors import MissingExtra
from smoothcert.models.architectures import Normalize, Normalized
from smoothcert.models.base import Classifier, Weights, check_classes, fresh_weights, not_loaded, unknown_name
from smoothcert.models.imports import without_compiler


def load(name: str, *, weights: Weights, classes: int | None) -> Classifier:
    """A classification model with the normalisation and the input size of its published weights."""
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
        check_classes(spec, categories, classes)
        try:
            # The builder below loads this file without `weights_only`, so a file that is not safe must fail here.
            published.get_state_dict(progress=False, check_hash=True, weights_only=True)
        except OSError as error:
            raise not_loaded(spec, error) from None
    classes = classes or categories
    with fresh_weights():
        network = models.get_model(name, weights=published if weights == "default" else None, num_classes=classes)
    transform = published.transforms()
    module = Normalized(Normalize(tuple(transform.mean), tuple(transform.std)), network).eval()
    return Classifier(module=module, classes=classes, name=spec, input_shape=(3, *(2 * transform.crop_size)))
