"""Models from torchvision and timm: `torchvision:resnet50`, `timm:resnet50.a1_in1k`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from smoothcert.errors import InvalidInput, did_you_mean, needs
from smoothcert.models.architectures import Normalize, Normalized
from smoothcert.models.base import Classifier, check_classes


def load_torchvision(name: str, *, published: bool, classes: int | None) -> Classifier:
    """A classification model with the normalisation and the input size of its published weights."""
    spec = f"torchvision:{name}"
    with needs("vision", what=spec):
        from torchvision import models

    _check_name("torchvision", name, models.list_models(module=models))
    weights = models.get_model_weights(name).DEFAULT
    categories = len(weights.meta["categories"])
    if published:
        check_classes(spec, categories, classes)  # before the download
        # The builder below loads this file without `weights_only`, so an unsafe file must fail
        # here.
        weights.get_state_dict(progress=False, check_hash=True, weights_only=True)
    classes = classes or categories
    network = models.get_model(name, weights=weights if published else None, num_classes=classes)
    transform = weights.transforms()
    module = Normalized(Normalize(tuple(transform.mean), tuple(transform.std)), network)
    return Classifier(
        module=module, classes=classes, name=spec, input_shape=(3, *transform.crop_size * 2)
    )


def load_timm(name: str, *, published: bool, classes: int | None) -> Classifier:
    """A model with the normalisation and the input size of its data configuration."""
    spec = f"timm:{name}"
    with needs("vision", what=spec):
        import timm
        from timm.data.config import resolve_model_data_config

    is_elsewhere = ":" in name  # timm itself resolves hf-hub:... and local-dir:... later
    if not is_elsewhere and not timm.is_model(name):
        _check_name("timm", name, timm.list_models())
    # With published weights, a head for another number of classes would stay untrained, so we never
    # ask for one.
    head: dict[str, Any] = {"num_classes": classes} if classes and not published else {}
    try:
        network: Any = timm.create_model(name, pretrained=published, **head)
    except RuntimeError as error:
        raise InvalidInput(
            "timm-failed", "timm cannot make {name!r}: {reason}", name=name, reason=error
        ) from None
    data = resolve_model_data_config(network)  # type: ignore[no-untyped-call]
    module = Normalized(Normalize(data["mean"], data["std"]), network)
    return Classifier(
        module=module, classes=network.num_classes, name=spec, input_shape=data["input_size"]
    )


def _check_name(source: str, name: str, names: Sequence[str]) -> None:
    """Refuse a name that a source does not have, and suggest the most similar ones."""
    if name not in names:
        raise InvalidInput(
            "unknown-name",
            "{source} has no classifier {name!r}{hint}",
            source=source,
            name=name,
            hint=did_you_mean(name, names),
        )
