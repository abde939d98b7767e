"""What a training run leaves in its folder: a checkpoint after each epoch, and at last the weights."""

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

from smoothcert._files import write_whole
from smoothcert.errors import InvalidInput


@dataclass(frozen=True)
class Folder:
    """The folder of one training run. Files appear whole or not at all."""

    path: Path

    @property
    def weights(self) -> Path:
        return self.path / "weights.safetensors"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    def open(self, settings: Mapping[str, Any]) -> int:
        """How many epochs are done; other settings than those of the epochs done are an error."""
        if not self.checkpoint.exists():
            return 0
        about = _read_about(self.checkpoint)
        try:
            then, done = json.loads(about["settings"]), int(about["epochs_done"])
        except (KeyError, ValueError):
            raise InvalidInput(f"{self.checkpoint} is of no training run of smoothcert: give another --out") from None
        now = json.loads(json.dumps(settings))
        if other := [key for key in now | then if now.get(key) != then.get(key)]:
            differences = ", ".join(f"{key} {_shown(then.get(key))}, now {_shown(now.get(key))}" for key in other)
            raise InvalidInput(
                f"{self.path} holds a training run with other settings ({differences}): repeat these to go on with it, "
                "or give another --out"
            )
        return done

    def check_writable(self) -> None:
        """Before an epoch is trained in vain."""
        try:
            TemporaryFile(dir=self.path).close()
        except OSError as error:
            raise InvalidInput(f"cannot write into {self.path}: {error.strerror}") from None

    def save_checkpoint(self, tensors: Mapping[str, Tensor], settings: Mapping[str, Any], epochs_done: int) -> None:
        about = {"settings": json.dumps(settings), "epochs_done": str(epochs_done)}
        _write(self.checkpoint, tensors, about)

    def load_checkpoint(self, tensors: Mapping[str, Tensor]) -> None:
        """Fill `tensors` in place."""
        with safe_open(self.checkpoint, framework="pt") as file:
            for name, tensor in tensors.items():
                tensor.copy_(file.get_tensor(name))

    def save_weights(self, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
        _write(self.weights, tensors, {key: str(value) for key, value in about.items()})

    def about_weights(self) -> dict[str, str]:
        """What the weights file says of itself; nothing where there is none."""
        return _read_about(self.weights) if self.weights.exists() else {}


def _shown(value: Any) -> Any:
    return f"{value[:8]}..." if isinstance(value, str) and len(value) == 64 else value


def _read_about(path: Path) -> dict[str, str]:
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror or error}") from None
    except SafetensorError as error:
        raise InvalidInput(f"{path} is damaged ({error}): delete it to start again, or give another --out") from None


def _write(path: Path, tensors: Mapping[str, Tensor], about: dict[str, str]) -> None:
    content = save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, about)
    # The library writes its header in random order; sorted, equal weights are equal files.
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    write_whole(path, len(header).to_bytes(8, "little") + header + content[end:])
