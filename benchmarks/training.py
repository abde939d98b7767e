"""Measure images per second of a training step on random data: plain, compiled, as a CUDA graph, and both.

    python benchmarks/training.py --arch cifar-resnet110 --method consistency --batch 512,1024,2048
    python benchmarks/training.py --arch unet-imagenet --method denoiser --shape 3,224,224 --batch 32,64

Every variant has `--cap` seconds in total, including compilation. If a variant fails, its line gives the reason and the
next variant follows. CUDA graphs need CUDA.
"""

from __future__ import annotations

import argparse
import copy
import signal
import time
from functools import partial
from types import FrameType

import torch

from smoothcert.device.runtime import synchronize
from smoothcert.training import method_named
from smoothcert.training.data import DeviceData
from smoothcert.training.optimizers import RunningMean
from smoothcert.training.step import Step, compile_blocks
from smoothcert.training.trainee import Start

VARIANTS = {"plain": (False, False), "compiled": (True, False), "graph": (False, True), "both": (True, True)}
IMAGES = 50_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="cifar-resnet110")
    parser.add_argument("--method", default="consistency")
    parser.add_argument("--sigma", type=float, default=0.5)
    parser.add_argument("--shape", default="3,32,32", help="channels, height and width of an input")
    parser.add_argument("--batch", default="512,1024,2048")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--seconds", type=float, default=4, help="seconds to measure")
    parser.add_argument("--cap", type=int, default=40, help="seconds for one variant in total")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()

    signal.signal(signal.SIGALRM, _out_of_time)
    torch.backends.cudnn.benchmark = True
    print(f"{args.arch}, {args.method}, sigma {args.sigma}, {args.device}, torch {torch.__version__}")
    print(f"{'batch':>6}  {'variant':<9} {'images/s':>10} {'ready after':>12} {'memory':>9} {'epoch of 50,000':>16}")
    for batch in map(int, args.batch.split(",")):
        for variant in args.variants.split(","):
            signal.alarm(args.cap)
            try:
                result = measure(args, batch, *VARIANTS[variant])
            except Exception as error:
                result = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:90] if str(error) else ''}"
            finally:
                signal.alarm(0)
                torch.compiler.reset()
                if args.device.startswith("cuda"):
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
            print(f"{batch:>6}  {variant:<9} {result}", flush=True)


def measure(args: argparse.Namespace, batch: int, compiled: bool, captured: bool) -> str:
    start = time.perf_counter()
    device = torch.device(args.device)
    method = method_named(args.method, sigma=args.sigma)
    shape = tuple(map(int, args.shape.split(",")))
    inputs = torch.randint(0, 256, (8192, *shape), dtype=torch.uint8, device=device)
    data = DeviceData(inputs, torch.randint(0, 10, (8192,), device=device))
    module = method.trainee(Start(args.arch, shape, 10)).module
    module.to(device, memory_format=torch.channels_last)
    optimizer = method.optimizer(module, momentum=0.9, weight_decay=1e-4)
    mean = RunningMean(copy.deepcopy(module), module) if method.keeps_mean else None
    autocast = partial(torch.autocast, device.type, dtype=torch.bfloat16, enabled=device.type == "cuda")
    step = Step(module, optimizer, method, data, batch=batch, autocast=autocast, mean=mean)
    if compiled:
        compile_blocks(module)
    if captured and not (device.type == "cuda" and step.capture()):
        return "cannot be captured here"
    index = torch.randint(0, len(data), (batch,), device=device)
    for _ in range(3):
        step(index, 0.01)
    synchronize(device)
    ready = time.perf_counter() - start
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < args.seconds:
        for _ in range(5):  # few enough for a short queue, and enough that synchronizing costs little
            step(index, 0.01)
        synchronize(device)
        steps += 5
    rate = steps * batch / (time.perf_counter() - begin)
    memory = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else float("nan")
    return f"{rate:>10,.0f} {ready:>10.1f} s {memory:>5.1f} GiB {IMAGES / rate:>14.2f} s"


def _out_of_time(signum: int, frame: FrameType | None) -> None:
    raise TimeoutError("no result within --cap seconds")


if __name__ == "__main__":
    main()
