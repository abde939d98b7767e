"""The folder of a training run: its checkpoint and its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from smoothcert._files import write_whole
from smoothcert._registry import check_settings, differences
from smoothcert.errors import InvalidInput

_RESULTS = {"accuracy", "psnr", "classes", "shape", "sigma_high", "epochs_done"}
"""What the files record beside the settings."""


class TrainingFolder:
    """The folder of one training run. Each file is written completely or not at all.

    Args:
        path: The folder.
        settings: The settings of the run. A file with other settings is refused.
    """

    def __init__(self, path: Path, settings: Mapping[str, object]) -> None:
        self.path = path
        self.weights = path / "weights.safetensors"
        self.checkpoint = path / "checkpoint.safetensors"
        self.settings = {key: str(value) for key, value in settings.items()}

    def recorded(self, path: Path, number: str) -> float | None:
        """A number that a file of this run records; None if there is no such file."""
        if not path.exists():
            return None
        metadata = _metadata(path)
        settings = {key: value for key, value in metadata.items() if key not in _RESULTS}
        check_settings(self.path, differences(settings, self.settings), what="training run")
        return float(metadata.get(number, "nan"))

    def save(
        self, path: Path, tensors: Mapping[str, Tensor], results: Mapping[str, object]
    ) -> None:
        """Write a file with the settings and these results."""
        # The tensors are cloned because the format has no shared memory, which tied weights have.
        copies = {
            name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()
        }
        metadata = self.settings | {key: str(value) for key, value in results.items()}
        write_whole(path, _with_sorted_header(save(copies, metadata)))

    def load_checkpoint(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy the tensors of the checkpoint into these tensors, which have the same names."""
        saved = load_file(self.checkpoint)
        different = saved.keys() ^ tensors.keys()
        if different:
            raise InvalidInput(
                "other-layers",
                "{file} is from a network with other trained layers: only one of them has "
                "{layer}; give another `out=DIR`",
                file=self.checkpoint,
                layer=min(different),
            )
        for name, value in saved.items():
            tensors[name].copy_(value)


def _metadata(path: Path) -> dict[str, str]:
    """What a file of a training run records beside its tensors."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata: dict[str, str] = file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise InvalidInput(
            "damaged-file",
            "{file} is damaged ({why}): delete it to start again, or give another `out=DIR`",
            file=path,
            why=error,
        ) from None
    if not {"method", "fingerprint"} <= metadata.keys():
        raise InvalidInput(
            "not-a-training-run",
            "{file} does not belong to a training run of smoothcert: give another `out=DIR`",
            file=path,
        )
    return metadata


def _with_sorted_header(content: bytes) -> bytes:
    """A safetensors file with a sorted header, so that equal weights give equal files.

    The library writes the header in random order. The file starts with the size of the header.
    """
    end = 8 + int.from_bytes(content[:8], "little")
    entries = json.loads(content[8:end])
    header = json.dumps(entries, sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[end:]
