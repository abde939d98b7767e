"""A network of the caller: its type, the hash of its weights, and copies that leave it as it is."""

from __future__ import annotations

import copy
import hashlib
import io
import pickle
import re
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pickletools import genops
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx import Graph
from torch.nn.parameter import is_lazy

from smoothcert.errors import InvalidInput, first_line
from smoothcert.noises import Noise

Network: TypeAlias = Callable[[Tensor], Any]
"""A module or a function, from a batch to logits or labels, or to something that holds them."""

_ROUNDING = 1e-6
_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)
_MEMORY_ADDRESS = re.compile(r"( at |=)0x[0-9a-fA-F]+")  # it changes from process to process
_PLAIN = (str, int, float, bool, dict, list, tuple, type(None))
_SHARED_BY_COPIES = (
    FunctionType,
    BuiltinFunctionType,
    CodeType,
    type,
    property,
    weakref.ref,
    Graph,
)
_MANGLED = re.compile(r"\.?___torch_mangle_\d+")  # torch numbers classes in a process
_NOT_HASHED = (".debug_pkl", ".data/serialization_id")
"""Entries of a TorchScript file that say where its source code was, and when it was written."""


@dataclass(frozen=True)
class Classifier:
    """A function from inputs in [0, 1] to classes, and what is known about it.

    Args:
        module: The function. It takes a batch of floats of shape (b, ...) and returns logits of
            shape (b, classes) or integer labels of shape (b,). A torch module must be in evaluation
            mode, unless it is random by design.
        classes: The number of classes; 0 if it is not known yet.
        name: What the user gave as the model.
        input_shape: The shape of one input, if it is known.
        weights_hash: The SHA-256 hash of the weights, which identifies the classifier. For a torch
            module it covers the layers and the names, types, shapes and bytes of their state; for a
            file, its content. None for a function.
        trained_sigma: The standard deviation of the noise in training, if it is known.
        trained_noise: The noise in training, if it is known.
        values: The smallest and the largest value of an input; None if it may have any.
        denoiser: Name, hash and description of the denoiser in front of it, if there is one. The
            hash of the weights then covers both.
        trained_denoiser: The hash of the denoiser in front of it in training, if there was one.
        trained_transformation: The transformation of pictures in training, if there was one.
    """

    module: Network
    classes: int
    name: str
    input_shape: tuple[int, ...] | None = None
    weights_hash: str | None = None
    trained_sigma: float | None = None
    trained_noise: Noise | None = None
    values: tuple[float, float] | None = None
    denoiser: Mapping[str, str] | None = None
    trained_denoiser: str | None = None
    trained_transformation: Noise | None = None

    def __post_init__(self) -> None:
        if self.classes < 2 and self.classes != 0:
            raise InvalidInput(
                "too-few-classes",
                "{model} has {classes} output, and a classifier needs at least two classes: "
                "return two logits, or labels; regression is not supported",
                model=self.name,
                classes=self.classes,
            )

    def inside(self, module: Network, how: str) -> Classifier:
        """This classifier with something around it, which makes it another one.

        Args:
            module: The classifier with what stands around it.
            how: What that is, in words that become a part of the hash.
        """
        weights_hash = self.weights_hash
        if weights_hash is not None:
            weights_hash = hashlib.sha256(f"{weights_hash} {how}".encode()).hexdigest()
        return replace(self, module=module, weights_hash=weights_hash)


def not_loaded(spec: str, error: Exception) -> InvalidInput:
    """The error for published weights that could not be downloaded or read."""
    return InvalidInput(
        "weights-not-loaded",
        "cannot get the weights of {model} ({reason}): check the name and the connection, give "
        "`weights=FILE`, or `weights=none` for an untrained network",
        model=spec,
        reason=first_line(error).rstrip("."),
    )


def check_classes(name: str, classes: int | None, wanted: int | None) -> None:
    """Refuse another number of classes than a classifier or its published weights have."""
    if wanted not in (None, classes):
        raise InvalidInput(
            "other-classes",
            "{model} has {classes} classes, not {wanted}: leave out `classes`, or give other "
            "weights",
            model=name,
            classes=classes,
            wanted=wanted,
        )


def check_values(
    values: tuple[float, float] | None, x: Tensor, which: str, taker: str = "the denoiser"
) -> None:
    """Refuse an input with values outside the range that a denoiser or training method takes."""
    if values is None or not x.numel():
        return
    smallest, largest = values
    low = float(x.min())
    high = float(x.max())
    if low < smallest - _ROUNDING or high > largest + _ROUNDING:
        raise InvalidInput(
            "values-out-of-range",
            "{which} has values from {low:g} to {high:g}, and {taker} takes inputs with values "
            "from {smallest:g} to {largest:g}: scale the data",
            which=which,
            low=low,
            high=high,
            taker=taker,
            smallest=smallest,
            largest=largest,
        )


def check_weights(module: Network, *, what: str = "the model") -> None:
    """Refuse a module whose weights are not there yet, or are complex numbers."""
    tensors = chain(module.parameters(), module.buffers()) if isinstance(module, nn.Module) else ()
    for tensor in tensors:
        if is_lazy(tensor) or tensor.is_meta:
            raise InvalidInput(
                "no-weights-yet",
                "{what} has layers without weights yet (lazy layers, or the meta device): call it "
                "on an input, or load its weights first",
                what=what,
            )
        # In the number format of the run, torch would drop imaginary parts.
        if tensor.is_complex():
            raise InvalidInput(
                "complex-weights",
                "{what} has complex weights: store them as pairs of real numbers "
                "(torch.view_as_real)",
                what=what,
            )


def state_hash(module: nn.Module) -> str:
    """The SHA-256 hash of the layers and the state of a module.

    Args:
        module: The module.
    """
    check_weights(module)
    digest = hashlib.sha256(_MEMORY_ADDRESS.sub("", repr(module)).encode())
    state = list((dict(module.named_buffers()) | module.state_dict()).items())
    for name, value in list(state):
        if isinstance(value, tuple):  # the weight and the bias of a quantized layer
            state += [(f"{name}.{number}", part) for number, part in enumerate(value)]
    for part_name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):  # its code and constants are not in its state
            state.append((f"{part_name} as TorchScript", _script_hash(part)))
    for name, value in sorted(state, key=lambda entry: entry[0]):
        if isinstance(value, Tensor):
            content = _dense(value).detach().cpu().contiguous()
            digest.update(f"{name} {content.dtype} {tuple(content.shape)}\n".encode())
            digest.update(_bytes_of(content))
        else:  # extra state may be any object
            digest.update(_MEMORY_ADDRESS.sub("", f"{name} {value!r}\n").encode())
    return digest.hexdigest()


def _script_hash(module: torch.jit.ScriptModule) -> str:
    """The SHA-256 hash of the code, the constants and the state of a TorchScript module."""
    file = io.BytesIO()
    torch.jit.save(module, file)
    digest = hashlib.sha256()
    with zipfile.ZipFile(file) as archive:
        for name in sorted(archive.namelist()):
            content = archive.read(name)
            if name.endswith(".py"):
                content = _MANGLED.sub("", content.decode()).encode()
            elif name.endswith(".pkl"):
                values = [(code.name, argument) for code, argument, _ in genops(content)]
                content = _MANGLED.sub("", repr(values)).encode()
            if not name.endswith(_NOT_HASHED):
                digest.update(_MANGLED.sub("", name).encode())
                digest.update(content)
    return digest.hexdigest()


def _flat(value: Tensor) -> Tensor:
    """The bytes of a tensor."""
    return _dense(value.detach()).flatten().view(torch.uint8)


def _bytes_of(content: Tensor) -> memoryview:
    return content.flatten().view(torch.uint8).numpy().data


_SMALL_TENSOR = 2**20
"""Numbers. Copying many small tensors from a GPU one by one takes longer than their content."""


_OFTEN_EMPTY = {name for name, value in vars(nn.Module()).items() if isinstance(value, dict | set)}
"""Attributes of every module that hold hooks and parts, if there are any."""


class _Snapshot(pickle.Pickler):
    """Writes down everything that a deep copy of an object would copy.

    What copies share, such as the functions of hooks, is told apart by identity. Tensors and arrays
    are written as checksums of their content: torch does not count changes through `tensor.data`,
    and programs that average weights make such changes. This takes 15 ms for ResNet-50.
    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.shared: list[object] = []
        self._small: dict[torch.device, list[Tensor]] = {}

    @property
    def checksums(self) -> list[int]:
        """The checksums of small tensors. All of a device are copied to the host at once."""
        contents = [torch.cat(list(map(_flat, small))).cpu() for small in self._small.values()]
        return [zlib.crc32(_bytes_of(content)) for content in contents]

    def persistent_id(self, value: Any) -> Any:
        """What is written instead of a value; None for the value itself."""
        if type(value) in _PLAIN or isinstance(value, nn.Module):
            return None
        if isinstance(value, Tensor):
            about = str(value.dtype), str(value.device), tuple(value.shape)
            if value.numel() <= _SMALL_TENSOR:
                self._small.setdefault(value.device, []).append(value)
                return about
            return *about, zlib.crc32(_bytes_of(_flat(value).cpu()))
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return value.dtype.str, value.shape, zlib.crc32(np.ascontiguousarray(value).data)
        if isinstance(value, _SHARED_BY_COPIES):
            self.shared.append(value)
            return "shared", id(value)
        return None

    def reducer_override(self, value: Any) -> Any:
        """How an object is taken apart: a module into its class and its attributes.

        The class may get another `forward`. TorchScript has fixed code, and no hooks.
        """
        if isinstance(value, torch.jit.ScriptModule):
            names = value._concrete_type.get_attributes()
            attributes = {name: getattr(value, name) for name in names}
            return type, (attributes,), dict(value.named_children())
        if isinstance(value, nn.Module):
            attributes = value.__getstate__()  # type: ignore[no-untyped-call]
            if isinstance(attributes, dict):
                attributes = {n: x for n, x in attributes.items() if n not in _OFTEN_EMPTY or x}
            return type, (type(value), type(value).forward), attributes
        return NotImplemented


def snapshot(*modules: nn.Module | None) -> tuple[bytes, list[object], list[int]]:
    """The state of modules, to notice changes of weights, buffers, hooks, modes and attributes.

    Two snapshots are equal if nothing has changed in between. A module with an attribute that
    cannot be read has no two equal snapshots.
    """
    file = io.BytesIO()
    writer = _Snapshot(file)
    try:
        writer.dump(modules)
        checksums = writer.checksums
    except Exception:  # attributes may be any objects
        return b"", [object()], []
    return file.getvalue(), writer.shared, checksums


def evaluation_mode(module: nn.Module) -> None:
    """Put a module into evaluation mode. The module of an exported program has no modes."""
    try:
        module.eval()
    except NotImplementedError:
        for part in module.modules():
            part.training = False


@contextmanager
def in_evaluation_mode(model: object) -> Iterator[None]:
    """In this context, a module is in evaluation mode. Then each layer gets its own mode back."""
    parts = list(model.modules()) if isinstance(model, nn.Module) else []
    modes = [(part, part.training) for part in parts]
    try:
        for part in parts[:1]:
            evaluation_mode(part)
        yield
    finally:
        for part, mode in modes:
            if part.training != mode:
                with suppress(NotImplementedError):  # as above
                    part.train(mode)  # a layer may do more than set its mode
        for part, mode in modes:
            part.training = mode


def import_path(value: Any) -> str:
    """The module and the name of a function, or of the class of a torch module."""
    is_named = hasattr(value, "__qualname__") and not isinstance(value, nn.Module)
    source = value if is_named else type(value)
    return f"{source.__module__}:{source.__qualname__}"


def like_weights(x: Tensor, module: Network) -> Tensor:
    """A batch on the device and in the format of a module's weights; float32 for a function."""
    parameters = module.parameters() if isinstance(module, nn.Module) else ()
    parameter = next((p for p in parameters if p.is_floating_point()), None)
    return x.float() if parameter is None else x.to(parameter)


def copied(module: nn.Module) -> nn.Module:
    """A deep copy of a module, without what `torch.compile` and `DataParallel` put around it.

    torch does not copy tensors that were computed from parameters. `torch.nn.utils.weight_norm`
    keeps such a weight in an attribute and computes it again in every forward pass, so its value is
    enough.

    Raises:
        InvalidInput: The module holds something that cannot be copied, such as a lock or an open
            file.
    """
    module = _unwrapped(module)
    attributes = (value for part in module.modules() for value in vars(part).values())
    computed = (value for value in attributes if isinstance(value, Tensor) and not value.is_leaf)
    try:
        return copy.deepcopy(module, {id(tensor): tensor.detach().clone() for tensor in computed})
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # attributes may be any objects
        raise InvalidInput(
            "not-copyable",
            "{kind} cannot be copied ({reason}): remove what cannot be copied from its "
            "attributes, or give a function that calls it",
            kind=type(module).__name__,
            reason=first_line(error),
        ) from error


def _unwrapped(module: nn.Module) -> nn.Module:
    """The module inside of what `torch.compile` and `DataParallel` put around it."""
    while hasattr(module, "_orig_mod") or type(module) in _PARALLEL:
        if module._forward_hooks or module._forward_pre_hooks:
            raise InvalidInput(
                "lost-hooks",
                "the hooks of {kind} would be lost, and with them a part of the classifier: "
                "register them on the module inside of it",
                kind=type(module).__name__,
            )
        module = getattr(module, "_orig_mod" if hasattr(module, "_orig_mod") else "module")
    return module


def _dense(value: Tensor) -> Tensor:
    """A tensor whose bytes can be read: not quantized, not sparse, lazy operations applied."""
    if value.is_quantized:
        value = value.dequantize()
    return value.to_dense().resolve_conj().resolve_neg()


def find_logits(output: Any, *, classes: int | None, device: torch.device) -> Tensor:
    """The logits or labels in the output of a model.

    The output is a tensor, an array, or a tuple, list, dictionary or object that holds one. An
    entry or attribute `logits`, as of a `ModelOutput` of Hugging Face, is taken. Otherwise, it is
    the only entry that can be logits: the only one at all, or the only one of shape (batch,
    classes).

    Raises:
        InvalidInput: There are no logits, or several entries may be the logits.
    """
    if isinstance(output, Tensor):
        return output.to_dense()
    if isinstance(output, np.ndarray) and output.dtype.kind in "biuf":
        return torch.from_numpy(np.ascontiguousarray(output)).to(device)
    return find_logits(_only_logits(output, classes), classes=classes, device=device)


def _only_logits(output: Any, classes: int | None) -> Any:
    """The part of a tuple, list, dictionary or object that can be the logits."""
    entries = _entries(output)
    named = entries.get("logits", getattr(output, "logits", None))
    if named is not None and not _has_boxes(entries):
        return named
    arrays = [value for value in entries.values() if isinstance(value, (Tensor, np.ndarray))]
    fitting = [array for array in arrays if array.ndim == 2 and classes in (None, array.shape[1])]
    for candidates in (fitting, arrays):
        if len(candidates) == 1:
            return candidates[0]
    _refuse_other_tasks(output, arrays)
    raise InvalidInput(
        "no-logits",
        "the model must return a tensor of logits or labels, and it returned a {kind}{entries}: "
        "return the logits alone, or name them, as in {example}",
        kind=type(output).__name__,
        entries="".join(f", {key}: {described(value)}" for key, value in entries.items()),
        example='{"logits": ...}',
    )


def _entries(output: Any) -> dict[Any, Any]:
    """The entries of a tuple, list or dictionary; none of other objects."""
    if isinstance(output, (tuple, list)):
        return dict(enumerate(output))
    return dict(output) if isinstance(output, Mapping) else {}


def _has_boxes(entries: Mapping[Any, Any]) -> bool:
    return any("boxes" in str(key) for key in entries)


def _refuse_other_tasks(output: Any, arrays: Sequence[Any]) -> None:
    """Refuse what is returned for another task, or by a pipeline, in words that say so."""
    first = next(iter(output), None) if isinstance(output, (tuple, list)) else output
    of_first = _entries(first)
    if _has_boxes(of_first):
        raise other_task("boxes", "detection")
    if arrays and all(map(is_map_of_classes, arrays)):
        raise other_task("maps of classes", "segmentation")
    if "score" in of_first:
        raise InvalidInput(
            "names-and-scores",
            "the model returns names of classes with scores, as a pipeline does: give its network "
            "by name, as in {example}, which also normalises",
            example="hf:NAME",
        )
    if isinstance(output, np.ndarray) and output.dtype.kind in "OSU":
        raise InvalidInput(
            "names-of-classes",
            "the model returns names of classes: return their numbers, or probabilities, as "
            "predict_proba of scikit-learn does",
        )
    if isinstance(first, str):
        raise other_task("text", "text")


def is_map_of_classes(array: Any) -> bool:
    """Whether an output tells the class of each pixel, as (batch, classes, height, width)."""
    return bool(array.ndim == 4 and array.shape[1] > 1)


def other_task(returned: str, task: str) -> InvalidInput:
    """The error for a model that is not a classifier.

    Args:
        returned: What it returns.
        task: What it is for.
    """
    return InvalidInput(
        "other-task",
        "smoothcert certifies one class per input; this model returns {returned}: {task} is not "
        "supported",
        returned=returned,
        task=task,
    )


def described(value: Any) -> str:
    """What a network returned, in words: "float32 of shape (8, 10)", or its type."""
    if not isinstance(value, (Tensor, np.ndarray)):
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
