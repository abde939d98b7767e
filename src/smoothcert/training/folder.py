"""The folder of a training run: a checkpoint after each epoch, and the weights at the end.

Both files record the settings. So a run is only continued, and its weights are only replaced, by the same run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from smoothcert._agreement import Answer, same_answers
from smoothcert._differences import check_settings
from smoothcert._files import write_whole
from smoothcert.errors import InvalidInput, setting

BUFFER = "buffer."
"""The prefix of buffers that are not saved with the weights (`persistent=False`)."""


@dataclass(frozen=True)
class Folder:
    """The folder of one training run. Each file is written completely or not at all."""

    path: Path
    settings: Mapping[str, Any]
    answers: Mapping[str, Sequence[Answer] | None]

    @property
    def weights(self) -> Path:
        """The file with the weights of a finished run."""
        return self.path / "weights.safetensors"

    @property
    def checkpoint(self) -> Path:
        """The file from which an interrupted run continues."""
        return self.path / "checkpoint.safetensors"

    def score(self, measure: str) -> float | None:
        """The score of the finished run; None if the run is not finished. Weights of another run are an error."""
        return self._recorded(self.weights, measure)

    def epochs_done(self) -> int:
        """The number of epochs that are already trained. A checkpoint of another run is an error."""
        return int(self._recorded(self.checkpoint, "epochs_done") or 0)

    def _recorded(self, path: Path, number: str) -> float | None:
        """A number that a file of this run records; None if there is no such file."""
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
        except OSError as error:
            raise InvalidInput(f"cannot read {path}: {error.strerror or error}") from None
        except SafetensorError as error:
            raise InvalidInput(
                f"{path} is damaged ({error}): delete it to start again, or give another {setting('out', 'DIR')}"
            ) from None
        try:
            there, recorded = (json.loads(metadata[key]) for key in ("settings", "answers"))
        except (KeyError, ValueError):
            raise InvalidInput(
                f"{path} does not belong to a training run of smoothcert: give another {setting('out', 'DIR')}"
            ) from None
        check_settings(self.path, there, json.loads(json.dumps(self.settings)), what="training run")
        for name, answers in self.answers.items():
            if not same_answers(recorded.get(name), answers):
                raise InvalidInput(
                    f"{self.path} holds another training run: its {name} had the same weights, but it gave other "
                    f"answers to the same inputs (has its code changed?); choose another {setting('out', 'DIR')}"
                )
        return float(metadata[number])

    def save_checkpoint(self, tensors: Mapping[str, Tensor], epochs_done: int) -> None:
        """Write the checkpoint."""
        _write(self.checkpoint, tensors, self._record | {"epochs_done": str(epochs_done)})

    def load_checkpoint(self, tensors: Mapping[str, Tensor]) -> None:
        """Read the checkpoint."""
        with safe_open(self.checkpoint, framework="pt") as file:
            saved = set(file.keys())
            if other := {name for name in saved ^ tensors.keys() if not name.startswith(BUFFER)}:
                raise InvalidInput(
                    f"{self.checkpoint} is from a network with other trained layers: only one of them has "
                    f"{min(other)}; give another {setting('out', 'DIR')}"
                )
            for name in saved & tensors.keys():
                value, tensor = file.get_tensor(name), tensors[name]
                # A buffer with another shape is a cache, which the network computes again. One that training does not
                # change may be an expanded tensor, which cannot be overwritten.
                if not name.startswith(BUFFER) or (
                    value.shape == tensor.shape and not torch.equal(value, tensor.cpu())
                ):
                    tensor.copy_(value)

    def save_weights(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Write the weights. Each setting is also an entry of its own, for other programs and for `read_checkpoint`."""
        metadata = {key: str(value) for key, value in {**self.settings, **facts}.items()}
        _write(self.weights, tensors, metadata | self._record)

    @property
    def _record(self) -> dict[str, str]:
        return {"settings": json.dumps(self.settings), "answers": json.dumps(self.answers)}


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU. The format has no shared memory, so each of several tied weights gets its own copy."""
    found: dict[int, str] = {}
    separate = {}
    for name, tensor in tensors.items():
        content = tensor.detach().cpu().contiguous()
        first = found.setdefault(content.untyped_storage().data_ptr(), name)
        separate[name] = content if first == name else content.clone()
    return separate


def _write(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    content = save(_separate(tensors), metadata)
    # The library writes its header in random order. We sort it, so that equal weights give equal files.
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    write_whole(path, len(header).to_bytes(8, "little") + header + content[end:])
