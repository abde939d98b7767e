"""ImageNet's validation folder, resized and cropped as the published certificates have it."""

from __future__ import annotations

import warnings
from pathlib import Path

from PIL import Image

from smoothcert.datasets.images import ImageFolder, part
from smoothcert.errors import InvalidInput

CLASSES = 1000
SHORT_EDGE = 256
CROP = 224
DOWNLOAD = (
    "download ILSVRC2012_img_val.tar from https://image-net.org and sort its images into one folder per class "
    "(val/n01440764/ILSVRC2012_val_00000293.JPEG, ...)"
)


def load(place: str | None, *, train: bool) -> ImageFolder:
    """`DIR/val` (or `DIR/train`), or `DIR` itself where that holds the class folders."""
    if place is None:
        raise InvalidInput(f"imagenet needs its folder: write imagenet:DIR, and {DOWNLOAD}")
    folder = part(Path(place), train=train)
    if not folder.is_dir():
        raise InvalidInput(f"no ImageNet at {folder}: {DOWNLOAD}")
    dataset = ImageFolder(folder, name="imagenet", prepare=resize_and_crop)
    if dataset.class_names is None:
        raise InvalidInput(f"{folder} holds images but no class folders: {DOWNLOAD}")
    if len(dataset.class_names) != CLASSES:
        warnings.warn(
            f"{folder} has {len(dataset.class_names)} class folders, not {CLASSES}: its labels count these in order "
            "and are not ImageNet's",
            UserWarning,
            stacklevel=3,
        )
    return dataset


def resize_and_crop(image: Image.Image) -> Image.Image:
    """Shorter edge to 256, then the central 224x224."""
    short = min(image.size)
    width, height = (SHORT_EDGE * edge // short for edge in image.size)
    left, top = round((width - CROP) / 2), round((height - CROP) / 2)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    return resized.crop((left, top, left + CROP, top + CROP))
