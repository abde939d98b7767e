"""CUDA C++ that is compiled when it is needed, by NVRTC, and launched by the CUDA driver.

A user needs neither a CUDA toolkit nor another package: torch brings NVRTC along. It brings
`cuda.bindings` only from version 2.10 on, so this module calls both libraries by ctypes. Compiled
kernels are cached on disk, so that only the first run on a machine compiles.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch

from smoothcert._files import write_whole
from smoothcert.errors import InvalidInput

log = logging.getLogger(__name__)

_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
"""A constant of cuda.h."""
_TENSOR_CORE_CAPABILITY = (8, 0)
"""Devices from this compute capability on have the instructions that our kernels use."""
_DIGEST_BYTES = 32
"""Of SHA-256. Cached files begin with the digest of the rest."""


class CudaError(RuntimeError):
    """NVRTC or the CUDA driver reported an error."""


def runs_kernels(device: torch.device) -> bool:
    """Whether a device has the tensor core instructions that our kernels use."""
    return (
        device.type == "cuda"
        and not torch.version.hip
        and torch.cuda.get_device_capability(device) >= _TENSOR_CORE_CAPABILITY
    )


@cache
def read_source(*names: str) -> str:
    """The CUDA C++ of these files of this folder, after the instructions that all kernels use."""
    folder = Path(__file__).parent
    return "\n".join((folder / f"{name}.cu").read_text() for name in ("instructions", *names))


def defines(**values: object) -> list[str]:
    """Constants of the source as options of NVRTC."""
    return [f"-D{name}={value}" for name, value in values.items()]


class Kernel:
    """A compiled CUDA kernel on one device.

    Args:
        source: CUDA C++ without `#include`.
        name: The name of the kernel, which is declared as `extern "C"`.
        options: Options of NVRTC, such as "-DCHANNELS=16". The architecture is added.
        device: The device that runs the kernel.
        shared_memory: The bytes of dynamic shared memory of a block.
    """

    def __init__(
        self,
        source: str,
        name: str,
        options: Sequence[str],
        device: torch.device,
        shared_memory: int = 0,
    ) -> None:
        self.shared_memory = shared_memory
        torch.cuda.init()  # type: ignore[no-untyped-call]
        index = torch.cuda.current_device() if device.index is None else device.index
        capability = torch.cuda.get_device_capability(index)
        self._device = torch.device("cuda", index)
        self._context = ctypes.c_void_p()
        self._function = ctypes.c_void_p()
        number = ctypes.c_int()
        _call_driver("cuDeviceGet", ctypes.byref(number), index)
        _call_driver("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), number)
        with self._current_context():
            try:
                self._load(compiled(source, options, capability), name)
            except CudaError as error:  # the cached file may be from another driver
                log.info("a compiled kernel cannot be loaded and is compiled again: %s", error)
                self._load(compiled(source, options, capability, use_cache=False), name)
            _call_driver(
                "cuFuncSetAttribute",
                self._function,
                ctypes.c_int(_MAX_DYNAMIC_SHARED_SIZE_BYTES),
                ctypes.c_int(shared_memory),
            )

    def resident_blocks(self, threads: int) -> int:
        """The number of blocks that run on one multiprocessor at the same time."""
        blocks = ctypes.c_int()
        with self._current_context():
            _call_driver(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor",
                ctypes.byref(blocks),
                self._function,
                ctypes.c_int(threads),
                ctypes.c_size_t(self.shared_memory),
            )
        return blocks.value

    def launch(self, blocks: int, threads: int, arguments: ctypes.Structure) -> None:
        """Launch the kernel on torch's current stream of its device.

        A CUDA graph can capture the launch.
        """
        stream = ctypes.c_void_p(torch.cuda.current_stream(self._device).cuda_stream)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
        sizes = (ctypes.c_uint(size) for size in (blocks, 1, 1, threads, 1, 1, self.shared_memory))
        with self._current_context():
            _call_driver("cuLaunchKernel", self._function, *sizes, stream, parameters, None)

    def _load(self, image: bytes, name: str) -> None:
        module = ctypes.c_void_p()
        _call_driver("cuModuleLoadData", ctypes.byref(module), image)
        _call_driver("cuModuleGetFunction", ctypes.byref(self._function), module, name.encode())

    @contextmanager
    def _current_context(self) -> Iterator[None]:
        """Make the device of the kernel current; a thread may use another one, or none so far."""
        _call_driver("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            _driver().cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p()))


def compiled(
    source: str, options: Sequence[str], capability: tuple[int, int], *, use_cache: bool = True
) -> bytes:
    """The machine code of CUDA C++ source, from the cache if it was compiled before.

    Raises:
        CudaError: NVRTC is missing or does not accept the source.
    """
    architecture = _architecture(capability)
    flags = [*options, f"--gpu-architecture={architecture}", "--std=c++17"]
    key = hashlib.sha256("\0".join([source, *flags, _version()]).encode()).hexdigest()
    path = cache_folder() / f"{key}.cubin"
    image = _read_cached(path) if use_cache else None
    if image is not None:
        return image
    image = _compile(source, flags, "CUBIN" if architecture.startswith("sm_") else "PTX")
    try:
        write_whole(path, hashlib.sha256(image).digest() + image)
    except InvalidInput as error:  # the folder is not writable, or another process writes the file
        log.info("compiled kernels are not cached: %s", error)
    return image


def cache_folder() -> Path:
    """The folder of compiled kernels, which the variable SMOOTHCERT_KERNELS can name."""
    chosen = os.environ.get("SMOOTHCERT_KERNELS")
    if chosen:
        return Path(chosen)
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "smoothcert" / "kernels"


def _version() -> str:
    """The version of NVRTC, such as "[12, 8]"."""
    major = ctypes.c_int()
    minor = ctypes.c_int()
    _call_nvrtc("Version", ctypes.byref(major), ctypes.byref(minor))
    return str([major.value, minor.value])


def _read_cached(path: Path) -> bytes | None:
    """The machine code in a cached file; None if there is no file, or if it is damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest = content[:_DIGEST_BYTES]
    image = content[_DIGEST_BYTES:]
    return image if hashlib.sha256(image).digest() == digest else None


def _compile(source: str, flags: list[str], kind: str) -> bytes:
    program = ctypes.c_void_p()
    _call_nvrtc(
        "CreateProgram", ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None
    )
    try:
        encoded = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
        if _nvrtc().nvrtcCompileProgram(program, len(flags), encoded):
            messages = _result(program, "ProgramLog").decode()
            raise CudaError(f"NVRTC cannot compile a kernel: {messages}")
        return _result(program, kind)
    finally:
        _nvrtc().nvrtcDestroyProgram(ctypes.byref(program))


def _result(program: ctypes.c_void_p, kind: str) -> bytes:
    size = ctypes.c_size_t()
    _call_nvrtc(f"Get{kind}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    _call_nvrtc(f"Get{kind}", program, buffer)
    return buffer.raw


def _architecture(capability: tuple[int, int]) -> str:
    """The target: machine code or, for a device that NVRTC does not support, PTX.

    The driver compiles PTX.
    """
    count = ctypes.c_int()
    _call_nvrtc("GetNumSupportedArchs", ctypes.byref(count))
    supported = (ctypes.c_int * count.value)()
    _call_nvrtc("GetSupportedArchs", supported)
    wanted = 10 * capability[0] + capability[1]
    if wanted in supported:
        return f"sm_{wanted}"
    older = [architecture for architecture in supported if architecture < wanted]
    if not older:
        major, minor = capability
        raise CudaError(f"NVRTC does not support devices of compute capability {major}.{minor}")
    return f"compute_{max(older)}"


def _call_driver(function: str, *arguments: Any) -> None:
    status = getattr(_driver(), function)(*arguments)
    if status:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(ctypes.c_int(status), ctypes.byref(text))
        raise CudaError(f"the CUDA driver reports: {(text.value or b'unknown error').decode()}")


def _call_nvrtc(function: str, *arguments: Any) -> None:
    status = getattr(_nvrtc(), f"nvrtc{function}")(*arguments)
    if status:
        raise CudaError(f"NVRTC reports: {_nvrtc().nvrtcGetErrorString(status).decode()}")


@cache
def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CudaError(f"the CUDA driver cannot be loaded: {error}") from None


@cache
def _nvrtc() -> ctypes.CDLL:
    """NVRTC, of the version that torch was built with."""
    if torch.version.cuda is None:
        raise CudaError("this version of torch comes without CUDA")
    for candidate in _nvrtc_candidates(int(torch.version.cuda.split(".")[0])):
        with suppress(OSError):
            library = ctypes.CDLL(candidate)
            library.nvrtcGetErrorString.restype = ctypes.c_char_p
            return library
    raise CudaError("NVRTC is not installed")


def _nvrtc_candidates(major: int) -> Iterator[str]:
    """Names and paths under which NVRTC may be found, the most likely ones first."""
    name = f"libnvrtc.so.{major}"
    yield name  # torch has usually loaded it
    packages = Path(torch.__file__).parent.parent
    for folder in (packages / "nvidia", packages / "torch" / "lib"):
        yield from (str(path) for path in sorted(folder.rglob(name)))
    installed = ctypes.util.find_library("nvrtc")
    if installed:
        yield installed
