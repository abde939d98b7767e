"""The folder of a training run: a checkpoint after each epoch, and the weights at the end.

Both files record the settings. So a run is only continued, and its weights are only replaced, by the same run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from smoothcert._files import write_whole
from smoothcert._registry import check_settings, differences
from smoothcert.errors import InvalidInput, setting

_RESULTS = {"accuracy", "psnr", "classes", "shape", "sigma_high", "epochs_done"}
"""What the files record beside the settings."""


class Folder:
    """The folder of one training run. Each file is written completely or not at all."""

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.weights, self.checkpoint = path / "weights.safetensors", path / "checkpoint.safetensors"
        self.settings = {key: str(value) for key, value in settings.items()}

    def recorded(self, path: Path, number: str) -> float | None:
        """A number that a file of this run records; None if there is no such file. Another run's file is an error."""
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                there = file.metadata() or {}
        except (OSError, SafetensorError) as error:
            raise InvalidInput(
                f"{path} is damaged ({error}): delete it to start again, or give another {setting('out', 'DIR')}"
            ) from None
        if not {"method", "fingerprint"} <= there.keys():
            raise InvalidInput(
                f"{path} does not belong to a training run of smoothcert: give another {setting('out', 'DIR')}"
            )
        settings = {key: value for key, value in there.items() if key not in _RESULTS}
        check_settings(self.path, differences(settings, self.settings), what="training run")
        return float(there.get(number, "nan"))

    def save(self, path: Path, tensors: Mapping[str, Tensor], results: Mapping[str, Any]) -> None:
        """Write a file with the settings and these results."""
        # Copies, because the format has no shared memory, as tied weights have it.
        content = save(
            {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()},
            self.settings | {key: str(value) for key, value in results.items()},
        )
        # The library writes its header in random order. We sort it, so that equal weights give equal files.
        end = 8 + int.from_bytes(content[:8], "little")
        header = json.dumps(json.loads(content[8:end]), sort_keys=True, separators=(",", ":")).encode()
        header += b" " * (-len(header) % 8)
        write_whole(path, len(header).to_bytes(8, "little") + header + content[end:])

    def load_checkpoint(self, tensors: Mapping[str, Tensor]) -> None:
        """Read the checkpoint."""
        saved = load_file(self.checkpoint)
        if other := saved.keys() ^ tensors.keys():
            raise InvalidInput(
                f"{self.checkpoint} is from a network with other trained layers: only one of them has {min(other)}; "
                f"give another {setting('out', 'DIR')}"
            )
        for name, value in saved.items():
            tensors[name].copy_(value)
