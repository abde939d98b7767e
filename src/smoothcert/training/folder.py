"""The folder of a training run: a checkpoint after each epoch, and the weights at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from smoothcert._differences import check_settings
from smoothcert._files import write_whole
from smoothcert.errors import InvalidInput


@dataclass(frozen=True)
class Folder:
    """The folder of one training run. Each file is written completely or not at all.

    Args:
        path: The folder.
    """

    path: Path

    @property
    def weights(self) -> Path:
        """The file with the weights of a finished run."""
        return self.path / "weights.safetensors"

    @property
    def checkpoint(self) -> Path:
        """The file from which an interrupted run continues."""
        return self.path / "checkpoint.safetensors"

    def open(self, settings: Mapping[str, Any]) -> int:
        """The number of epochs that are already trained.

        Args:
            settings: The settings of this run. If they differ from those of the trained epochs, that is an error.
        """
        if not self.checkpoint.exists():
            return 0
        metadata = _read_metadata(self.checkpoint)
        try:
            then, epochs_done = json.loads(metadata["settings"]), int(metadata["epochs_done"])
        except (KeyError, ValueError):
            raise InvalidInput(
                f"{self.checkpoint} does not belong to a training run of smoothcert: give another out=DIR"
            ) from None
        check_settings(self.path, then, json.loads(json.dumps(settings)), what="training run")
        return epochs_done

    def check_writable(self) -> None:
        """Raise an error now, not after the first epoch, if the folder cannot be written."""
        try:
            TemporaryFile(dir=self.path).close()
        except OSError as error:
            raise InvalidInput(f"cannot write into {self.path}: {error.strerror}") from None

    def save_checkpoint(self, tensors: Mapping[str, Tensor], settings: Mapping[str, Any], epochs_done: int) -> None:
        """Write the checkpoint.

        Args:
            tensors: Everything that training changes, by name.
            settings: The settings of this run.
            epochs_done: The number of epochs that are trained.
        """
        _write(self.checkpoint, tensors, {"settings": json.dumps(settings), "epochs_done": str(epochs_done)})

    def load_checkpoint(self, tensors: Mapping[str, Tensor]) -> None:
        """Read the checkpoint.

        Args:
            tensors: The tensors to overwrite, under the names that they were saved with.
        """
        with safe_open(self.checkpoint, framework="pt") as file:
            for name, tensor in tensors.items():
                tensor.copy_(file.get_tensor(name))

    def save_weights(self, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
        """Write the weights.

        Args:
            tensors: The state of the network.
            metadata: What the file says about itself, such as the architecture and the noise.
        """
        _write(self.weights, tensors, {key: str(value) for key, value in metadata.items()})

    def weights_metadata(self) -> dict[str, str]:
        """The metadata of the weights file; empty if there is no file."""
        return _read_metadata(self.weights) if self.weights.exists() else {}


def _read_metadata(path: Path) -> dict[str, str]:
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}") from None
    except SafetensorError as error:
        raise InvalidInput(f"{path} is damaged ({error}): delete it to start again, or give another out=DIR") from None


def _write(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    content = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, metadata)
    # The library writes its header in random order. We sort it, so that equal weights give equal files.
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    write_whole(path, len(header).to_bytes(8, "little") + header + content[end:])
