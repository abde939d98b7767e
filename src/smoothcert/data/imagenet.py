"""The validation folder of ImageNet, resized and cropped as for published certificates."""

from __future__ import annotations

import warnings
from pathlib import Path

from PIL import Image

from smoothcert._check import NO_CLASS
from smoothcert.data.images import ImageFolder, part, training_classes
from smoothcert.errors import InvalidInput

CLASSES = 1000
SHORT_EDGE = 256
CROP = 224
DOWNLOAD = (
    "download ILSVRC2012_img_val.tar from https://image-net.org and sort its images into one folder per class "
    "(val/n01440764/ILSVRC2012_val_00000293.JPEG, ...)"
)


def load(place: str | None, *, train: bool) -> ImageFolder:
    """ImageNet from a folder with one subfolder per class."""
    if place is None:
        raise InvalidInput(f"imagenet needs its folder: write imagenet:DIR, and {DOWNLOAD}")
    folder = part(Path(place), train=train)
    if not folder.is_dir():
        raise InvalidInput(f"no ImageNet at {folder}: {DOWNLOAD}")
    classes = training_classes(Path(place), train=train)
    dataset = ImageFolder(folder, name="imagenet", prepare=resize_and_crop, class_names=classes)
    if dataset.labels[0] == NO_CLASS:
        raise InvalidInput(f"{folder} holds images but no class folders: {DOWNLOAD}")
    if dataset.class_names is not None and len(dataset.class_names) != CLASSES:
        found = f"{folder} has {len(dataset.class_names)} class folders, not {CLASSES}"
        warnings.warn(f"{found}: labels are the numbers of these folders, not those of ImageNet", stacklevel=3)
    return dataset


def resize_and_crop(image: Image.Image) -> Image.Image:
    """Resize the shorter edge to 256 and crop the central 224x224 pixels."""
    short = min(image.size)
    width, height = (SHORT_EDGE * edge // short for edge in image.size)
    left, top = round((width - CROP) / 2), round((height - CROP) / 2)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    return resized.crop((left, top, left + CROP, top + CROP))
