"""Models from torchvision and timm: `torchvision:resnet50`, `timm:resnet50.a1_in1k`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from smoothcert.errors import InvalidInput, did_you_mean, needs
from smoothcert.models.architectures import Normalize, Normalized
from smoothcert.models.base import Classifier, check_classes

_COMPILER = "torch._dynamo"
_UTILITIES = "torch._dynamo.utils"


def load_torchvision(name: str, *, published: bool, classes: int | None) -> Classifier:
    """A classification model with the normalisation and the input size of its published weights."""
    spec = f"torchvision:{name}"
    with needs("vision", what=spec), without_compiler():
        from torchvision import models

    _check_name("torchvision", name, models.list_models(module=models))
    weights = models.get_model_weights(name).DEFAULT
    categories = len(weights.meta["categories"])
    if published:
        check_classes(spec, categories, classes)  # before the download
        # The builder below loads this file without `weights_only`, so a file that is not safe must fail here.
        weights.get_state_dict(progress=False, check_hash=True, weights_only=True)
    classes = classes or categories
    network = models.get_model(name, weights=weights if published else None, num_classes=classes)
    transform = weights.transforms()
    module = Normalized(Normalize(tuple(transform.mean), tuple(transform.std)), network)
    return Classifier(
        module=module, classes=classes, name=spec, input_shape=(3, *(2 * transform.crop_size))
    )


def load_timm(name: str, *, published: bool, classes: int | None) -> Classifier:
    """A model with the normalisation and the input size of its data configuration."""
    spec = f"timm:{name}"
    with needs("vision", what=spec), without_compiler():
        import timm
        from timm.data.config import resolve_model_data_config

    if ":" not in name and not timm.is_model(
        name
    ):  # timm itself resolves hf-hub:... and local-dir:... later
        _check_name("timm", name, timm.list_models())
    # With published weights, a head for another number of classes would stay untrained, so we never ask for one.
    head: dict[str, Any] = {"num_classes": classes} if classes and not published else {}
    try:
        network: Any = timm.create_model(name, pretrained=published, **head)
    except RuntimeError as error:
        raise InvalidInput(f"timm cannot make {name!r}: {error}") from None
    data = resolve_model_data_config(network)  # type: ignore[no-untyped-call]
    module = Normalized(Normalize(data["mean"], data["std"]), network)
    return Classifier(
        module=module, classes=network.num_classes, name=spec, input_shape=data["input_size"]
    )


def _check_name(source: str, name: str, known: Sequence[str]) -> None:
    """Refuse a name that a source does not have, and suggest the most similar ones."""
    if name not in known:
        raise InvalidInput(f"{source} has no classifier {name!r}{did_you_mean(name, known)}")


@contextmanager
def without_compiler() -> Iterator[None]:
    """In this context, torch's compiler is imported only when something else than one function is asked for.

    torchvision asks the compiler for this function, which only its detection models need. That makes `import
    torchvision` import the whole compiler, and loading `torchvision:resnet18` take 2.7 s instead of 1.7 s.
    """
    if _COMPILER not in sys.modules:
        sys.modules |= {name: _StandIn(name) for name in (_COMPILER, _UTILITIES)}
    try:
        yield
    finally:
        _remove_stand_ins()


class _StandIn(ModuleType):
    """Becomes the real module when another attribute is needed."""

    def __getattr__(self, name: str) -> Any:
        if name == "is_compile_supported":
            return lambda device: import_module(_UTILITIES).is_compile_supported(device)
        if name.startswith("__") and (self.__name__, name) != (
            _COMPILER,
            "__path__",
        ):  # asked for in any module
            raise AttributeError(name)
        _remove_stand_ins()
        return getattr(import_module(self.__name__), name)


def _remove_stand_ins() -> None:
    for name in (_COMPILER, _UTILITIES):
        if isinstance(sys.modules.get(name), _StandIn):
            del sys.modules[name]
