"""ONNX files, run by onnxruntime: `onnx:model.onnx`.

The graph takes inputs in [0, 1], so it has to normalise them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from smoothcert.errors import InvalidInput, MissingExtra, first_line
from smoothcert.models.base import Classifier

_TYPES = {"tensor(float)": torch.float32, "tensor(float16)": torch.float16}


class OnnxModule(nn.Module):
    """An ONNX graph with one input as a torch module. It runs on the device of the batch.

    If the graph has a fixed batch size, the module splits each batch into parts of this size. It
    pads the last part and removes the padding from the result.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self._sessions: dict[torch.device, Any] = {}
        session = self._session(torch.device("cpu"))
        inputs = session.get_inputs()
        if len(inputs) != 1 or inputs[0].type not in _TYPES or not inputs[0].shape:
            listed = ", ".join(f"{each.name}: {each.type} {each.shape}" for each in inputs)
            raise InvalidInput(
                "not-one-input",
                "{path} must have one input, a batch of floats; it has {inputs}",
                path=path,
                inputs=listed or "none",
            )
        self.input_name: str = inputs[0].name
        self.input_type = _TYPES[inputs[0].type]
        self.own_dtype = str(self.input_type).removeprefix("torch.")
        self.batch, *shape = map(_fixed, inputs[0].shape)
        # In a batch of one row, there are no others that it could depend on.
        self.dynamic_operation = None if self.batch == 1 else _dynamic_operation(path)
        self.input_shape = tuple(size for size in shape if size) if all(shape) else None
        output = session.get_outputs()[0]
        self.output_name: str = output.name
        self.output_shape = tuple(map(_fixed, output.shape))

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def forward(self, x: Tensor) -> Tensor:
        """The logits or labels for a batch."""
        if self.batch is None:
            return self._run(x)
        parts = list(torch.split(x, self.batch))
        padding = self.batch - len(parts[-1])
        parts[-1] = torch.cat([parts[-1], parts[-1][:1].expand(padding, *x.shape[1:])])
        return torch.cat([self._run(part) for part in parts])[: len(x)]

    def _run(self, x: Tensor) -> Tensor:
        session = self._session(x.device)
        batch = x.to(self.input_type).contiguous()
        if x.device.type != "cuda":
            values = session.run([self.output_name], {self.input_name: batch.numpy(force=True)})[0]
        else:
            binding, index = session.io_binding(), x.device.index
            torch.cuda.current_stream(x.device).synchronize()  # onnxruntime uses its own stream
            kind = np.float16 if self.input_type == torch.float16 else np.float32
            binding.bind_input(
                self.input_name, "cuda", index, kind, tuple(batch.shape), batch.data_ptr()
            )
            binding.bind_output(self.output_name, "cuda", index)
            session.run_with_iobinding(binding)
            values = binding.copy_outputs_to_cpu()[0]
        return torch.from_numpy(values).to(x.device)

    def _session(self, device: torch.device) -> Any:
        if device not in self._sessions:
            self._sessions[device] = _open(self.path, device)
        return self._sessions[device]

    def __getstate__(self) -> dict[str, Any]:
        # Sessions cannot be copied; each copy opens its own.
        return {**self.__dict__, "_sessions": {}}


def load(name: str, *, published: bool, classes: int | None) -> Classifier:
    """An ONNX graph whose first output is logits or labels."""
    path = Path(name)
    if not published:
        raise InvalidInput(
            "own-weights",
            "onnx:{file} contains its weights: leave out `weights`",
            file=name,
        )
    if not (find_spec("onnx") and find_spec("onnxruntime")):
        raise MissingExtra(f"onnx:{path}", "onnx")
    module = OnnxModule(path)
    logits = module.output_shape[1] if len(module.output_shape) == 2 else None
    return Classifier(
        module=module,
        classes=logits or classes or 0,
        name=f"onnx:{name}",
        input_shape=module.input_shape,
        weights_hash=_hash(path),
    )


def _open(path: Path, device: torch.device) -> Any:
    import onnxruntime

    cuda = ("CUDAExecutionProvider", {"device_id": device.index})
    available = onnxruntime.get_available_providers()
    providers = [cuda] if device.type == "cuda" and cuda[0] in available else []
    try:
        session = onnxruntime.InferenceSession(path, providers=[*providers, "CPUExecutionProvider"])
    except Exception as error:  # the errors of onnxruntime have no other common base class
        raise InvalidInput(
            "damaged-onnx",
            "{path} cannot be loaded as an ONNX file: {reason}",
            path=path,
            reason=first_line(error),
        ) from None
    # Without CUDA, onnxruntime silently uses the CPU.
    if device.type == "cuda" and cuda[0] not in session.get_providers():
        raise InvalidInput(
            "onnx-without-cuda",
            "this onnxruntime cannot use CUDA: pip install onnxruntime-gpu, or give `device=cpu`",
        )
    return session


def _fixed(size: int | str | None) -> int | None:
    """A size that the graph fixes. Names, 0 and -1 mean any size."""
    return size if isinstance(size, int) and size > 0 else None


def _hash(path: Path) -> str:
    """The SHA-256 hash of the file and of the files that hold its external data."""
    digest = hashlib.sha256()
    for part in (path, *(path.parent / location for location in _locations(path))):
        with part.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _locations(path: Path) -> list[str]:
    """The files with the external data of a graph, relative to its folder."""
    entries = [entry for part in _parts(path, "TensorProto") for entry in part.external_data]
    locations = {entry.value for entry in entries if entry.key == "location"}
    for location in locations:
        if Path(location).is_absolute() or ".." in Path(location).parts:
            raise InvalidInput(
                "weights-outside-folder",
                "{path} has weights outside its folder, in {location}: move them into the folder",
                path=path,
                location=location,
            )
    return sorted(location for location in locations if (path.parent / location).is_file())


def _dynamic_operation(path: Path) -> str | None:
    """An operation that scales a batch by its largest value; None if the graph has none."""
    operations = [node.op_type for node in _parts(path, "NodeProto")]
    return next((name for name in operations if name.startswith("DynamicQuantize")), None)


def _parts(path: Path, kind: str) -> Iterator[Any]:
    """All tensors or nodes of an ONNX file, also those in subgraphs, functions and attributes."""
    import onnx

    yield from _parts_of(onnx.load(path, format="protobuf", load_external_data=False), kind)


def _parts_of(message: Any, kind: str) -> Iterator[Any]:
    if message.DESCRIPTOR.name == kind:
        yield message
    if message.DESCRIPTOR.name == "TensorProto":
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                yield from _parts_of(part, kind)
