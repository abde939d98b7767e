"""Models from timm: `timm:resnet50.a1_in1k`."""

from __future__ import annotations

from typing import Any

from smoothcert.errors import InvalidInput, MissingExtra
from smoothcert.models.architectures import Normalize, Normalized
from smoothcert.models.base import Classifier, Weights, check_classes, fresh_weights, not_loaded, unknown_name
from smoothcert.models.imports import without_compiler


def load(name: str, *, weights: Weights, classes: int | None) -> Classifier:
    """A model with the normalisation and the input size of its data configuration."""
    spec = f"timm:{name}"
    try:
        with without_compiler():
            import timm
            from timm.data.config import resolve_model_data_config
    except ImportError:
        raise MissingExtra(spec, "vision") from None

    if ":" not in name and not timm.is_model(name):  # timm itself resolves hf-hub:... and local-dir:... later
        raise unknown_name("timm", name, timm.list_models())
    # With published weights, a head for another number of classes would stay untrained, so we never ask for one.
    head: dict[str, Any] = {"num_classes": classes} if classes and weights != "default" else {}
    try:
        with fresh_weights():
            network: Any = timm.create_model(name, pretrained=weights == "default", **head)
    except OSError as error:
        raise not_loaded(spec, error) from None
    except RuntimeError as error:
        raise InvalidInput(f"timm cannot make {name!r}: {error}") from None
    if weights == "default":
        check_classes(spec, network.num_classes, classes)
    data = resolve_model_data_config(network)  # type: ignore[no-untyped-call]
    module = Normalized(Normalize(data["mean"], data["std"]), network).eval()
    return Classifier(module=module, classes=network.num_classes, name=spec, input_shape=data["input_size"])
