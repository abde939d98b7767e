"""Image classifiers of Hugging Face, by name or from a folder: `hf:microsoft/resnet-50`."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from smoothcert.errors import InvalidInput, first_line, needs
from smoothcert.models.architectures import Normalize, Normalized
from smoothcert.models.base import Classifier, check_classes, not_loaded


class _Logits(nn.Module):
    """A transformers model that returns only its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Tensor) -> Tensor:
        logits: Tensor = self.model(pixel_values=pixel_values).logits
        return logits


def load(name: str, *, published: bool, classes: int | None) -> Classifier:
    """A model with the normalisation and the input size of its image processor."""
    spec = f"hf:{name}"
    with needs("hf", what=spec):
        from transformers import AutoConfig, AutoModelForImageClassification

    try:
        config = AutoConfig.from_pretrained(name)
    except (OSError, ValueError) as error:
        raise not_loaded(spec, error) from None
    if published:
        check_classes(spec, config.num_labels, classes)  # before the download
    try:
        if published:
            model = AutoModelForImageClassification.from_pretrained(name)
        else:
            config.num_labels = classes or config.num_labels
            model = AutoModelForImageClassification.from_config(config)  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise InvalidInput(
            "not-an-image-classifier",
            "{model} is not an image classifier: {reason}",
            model=spec,
            reason=first_line(error),
        ) from None
    processor = _processor(name)
    edges = _edges(processor)
    return Classifier(
        module=Normalized(_normalize(processor), _Logits(model.float())),
        classes=model.config.num_labels,
        name=spec,
        input_shape=edges and (getattr(model.config, "num_channels", 3), *edges),
    )


def _processor(name: str) -> dict[str, Any]:
    """The settings of the image processor."""
    from transformers.image_processing_base import ImageProcessingMixin

    try:
        settings: dict[str, Any] = ImageProcessingMixin.get_image_processor_dict(name)[0]
    except OSError:
        raise InvalidInput(
            "no-image-processor",
            "hf:{name} has no preprocessor_config.json, so its normalisation is unknown: save its "
            "image processor in the same folder, or the text {text} if it takes pixels in [0, 1]",
            name=name,
            text='{"do_normalize": false}',
        ) from None
    return settings


def _normalize(processor: dict[str, Any]) -> Normalize:
    """What the processor does to bytes b, written for inputs x = b / 255.

    It is (x * scale - offset - mean) / deviation.
    """
    scale = 255.0
    if processor.get("do_rescale", True):
        scale *= processor.get("rescale_factor", 1 / 255)
    offset = 1.0 if processor.get("rescale_offset", False) else 0.0
    mean = [0.0]
    deviation = [1.0]
    if processor.get("do_normalize", True):
        mean = _entry(processor, "image_mean")
        deviation = _entry(processor, "image_std")
    return Normalize(tuple((m + offset) / scale for m in mean), tuple(d / scale for d in deviation))


def _entry(processor: dict[str, Any], name: str) -> Any:
    if name not in processor:
        raise InvalidInput(
            "no-normalisation",
            "the preprocessor_config.json has no {entry!r}, so the normalisation is unknown",
            entry=name,
        )
    return processor[name]


def _edges(processor: dict[str, Any]) -> tuple[int, int] | None:
    """The height and width of the images that the processor makes."""
    size = processor.get("crop_size") if processor.get("do_center_crop") else processor.get("size")
    if isinstance(size, int):
        return size, size
    if isinstance(size, dict) and "height" in size and "width" in size:
        return size["height"], size["width"]
    return None
