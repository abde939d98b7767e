"""ONNX files, run by onnxruntime: `onnx:model.onnx`. They take inputs in [0, 1]: normalisation is in the graph."""

from __future__ import annotations

import hashlib
import mmap
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.classifiers.base import Classifier, Weights
from smoothcert.classifiers.checkpoint import sigma_in_name
from smoothcert.errors import InvalidInput, MissingExtra

# An entry of a tensor's external data as it is written: the key `location`, then the length of the value in base 128.
_LOCATION = re.compile(rb"\n\x08location\x12([\x80-\xff]{0,4}[\x00-\x7f])")
_TYPES = {"tensor(float)": torch.float32, "tensor(float16)": torch.float16}


class OnnxModule(nn.Module):
    """A graph with one input as a module: tensors in, tensors out, on the device where the batch lies.

    A graph of a fixed batch size is run as often as it takes; the last batch is filled up, and cut off again.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._sessions: dict[torch.device, Any] = {}
        session = self._session(torch.device("cpu"))
        inputs = session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in _TYPES or not inputs[0].shape:
            found = ", ".join(f"{i.name}: {i.type} {i.shape}" for i in inputs)
            raise InvalidInput(f"{path} must have one input, a batch of floats; it has {found or 'none'}")
        self.input_name: str = inputs[0].name
        self.input_type = _TYPES[inputs[0].type]
        self.own_dtype = str(self.input_type).removeprefix("torch.")
        self.batch, *shape = map(_fixed, inputs[0].shape)
        self.input_shape = tuple(shape)
        output = session.get_outputs()[0]
        self.output_name: str = output.name
        self.output_shape = tuple(map(_fixed, output.shape))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, x: Tensor) -> Tensor:
        expected = tuple(own or given for own, given in zip(self.input_shape, x.shape[1:], strict=False))
        if x.shape[1:] != expected or len(expected) != len(self.input_shape):
            raise InvalidInput(f"{self.path} takes inputs of shape {self.input_shape}, got {tuple(x.shape[1:])}")
        if self.batch is None:
            return self._run(x)
        parts = list(torch.split(x, self.batch))
        gap = self.batch - len(parts[-1])
        parts[-1] = torch.cat([parts[-1], parts[-1][:1].expand(gap, *x.shape[1:])])
        return torch.cat([self._run(part) for part in parts])[: len(x)]

    def _run(self, x: Tensor) -> Tensor:
        session = self._session(x.device)
        batch = x.to(self.input_type).contiguous()
        if x.device.type != "cuda":
            values = session.run([self.output_name], {self.input_name: batch.numpy(force=True)})[0]
        else:
            binding, index = session.io_binding(), x.device.index
            torch.cuda.current_stream(x.device).synchronize()  # onnxruntime works on a stream of its own
            kind = np.float16 if self.input_type == torch.float16 else np.float32
            binding.bind_input(self.input_name, "cuda", index, kind, tuple(batch.shape), batch.data_ptr())
            binding.bind_output(self.output_name, "cuda", index)
            session.run_with_iobinding(binding)
            values = binding.copy_outputs_to_cpu()[0]
        return torch.from_numpy(values).to(x.device)

    def _session(self, device: torch.device) -> Any:
        if device not in self._sessions:
            self._sessions[device] = _open(self.path, device)
        return self._sessions[device]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sessions": {}}  # sessions stay in their process; a copy opens its own


def load(name: str, *, weights: Weights, classes: int | None, sigma: float | None) -> Classifier:
    """A graph that answers with logits or labels in its first output."""
    path = Path(name)
    if weights != "default":
        raise InvalidInput(f"onnx:{name} has its weights inside: leave out --weights")
    if not path.is_file():
        raise InvalidInput(f"no ONNX file at {path}")
    module = OnnxModule(path)
    own = module.output_shape[1] if len(module.output_shape) == 2 else None
    if own and classes and own != classes:
        raise InvalidInput(f"onnx:{name} has {own} classes, not {classes}")
    if not (own or classes):
        raise InvalidInput(
            f"onnx:{name} does not tell its number of classes (output {module.output_name}): give --classes"
        )
    known = all(module.input_shape)
    return Classifier(
        module=module.eval(),
        classes=own or classes or 0,
        name=f"onnx:{name}",
        input_shape=tuple(size or 0 for size in module.input_shape) if known else None,
        weights_hash=_hash(path),
        trained_sigma=sigma_in_name(path),
    )


def _open(path: Path, device: torch.device) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtra(f"onnx:{path}", "onnx") from None

    cuda = ("CUDAExecutionProvider", {"device_id": device.index})
    here = onnxruntime.get_available_providers()
    providers = [cuda] if device.type == "cuda" and cuda[0] in here else []
    try:
        session = onnxruntime.InferenceSession(path, providers=[*providers, "CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors share no other base
        raise InvalidInput(f"{path} cannot be loaded as an ONNX file: {str(error).strip()[:200]}") from None
    if device.type == "cuda" and cuda[0] not in session.get_providers():  # it falls back to the CPU without a word
        raise InvalidInput("this onnxruntime cannot use CUDA: pip install onnxruntime-gpu, or give --device cpu")
    return session


def _fixed(size: int | str | None) -> int | None:
    """A length that the graph fixes; names, 0 and -1 stand for any length."""
    return size if isinstance(size, int) and size > 0 else None


def _hash(path: Path) -> str:
    """Over the file and the files beside it that hold its large weights."""
    digest = hashlib.sha256()
    for part in (path, *(path.parent / location for location in _locations(path))):
        with part.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _locations(path: Path) -> list[str]:
    """Where the graph says that its external data lies."""
    found = set()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        for entry in _LOCATION.finditer(content):
            size = sum((byte & 127) << 7 * i for i, byte in enumerate(entry[1]))
            found.add(content[entry.end() : entry.end() + size].decode(errors="surrogateescape"))
    for location in found:
        if Path(location).is_absolute() or ".." in Path(location).parts:
            raise InvalidInput(f"{path} has weights outside its folder, in {location}: move them beside it")
    return sorted(location for location in found if (path.parent / location).is_file())
