"""Measure the stage kernels of a CIFAR ResNet: time, registers and arithmetic rate of each stage and of all together.

    python benchmarks/stages.py
    python benchmarks/stages.py --model cifar-resnet20 --dtype float16 --layouts 8 --against default

Weights are random. The table has the most promising layouts of each stage. The last lines have the classifier with the
best layouts. `--against default` also prepares and times the compiled classifier, which takes half a minute.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import torch
from torch import nn

from smoothcert.device.runtime import Runtime
from smoothcert.kernels.resnet.classifier import StageClassifier
from smoothcert.kernels.resnet.layout import Layout, layouts
from smoothcert.kernels.resnet.match import match
from smoothcert.kernels.tracing import trace
from smoothcert.models.architectures import ARCHITECTURES, build
from smoothcert.noises.draws import Additive, AdditiveGrid, Draw
from smoothcert.sampling.packing import Segment
from smoothcert.sampling.streams import stream_for
from smoothcert.smoothed.prepare import prepare

CUDA = torch.device("cuda")


class TimedKernel:
    """A kernel that records CUDA events around its launches."""

    def __init__(self, kernel) -> None:  # type: ignore[no-untyped-def]
        self.kernel = kernel
        self.events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def launch(self, *arguments) -> None:  # type: ignore[no-untyped-def]
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        self.kernel.launch(*arguments)
        after.record()
        self.events.append((before, after))

    def milliseconds(self) -> float:
        """The median of the measured times."""
        torch.cuda.synchronize()
        times = sorted(before.elapsed_time(after) for before, after in self.events)
        return times[len(times) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="cifar-resnet110")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--batch", type=int, default=4224)
    parser.add_argument("--layouts", type=int, default=6, help="layouts to try for each stage")
    parser.add_argument("--repeats", type=int, default=12)
    parser.add_argument("--against", choices=["none", "fast", "default", "max"], default=None)
    args = parser.parse_args()
    dtype, shape = getattr(torch, args.dtype), ARCHITECTURES[args.model].input_shape
    module = _with_statistics(build(args.model))
    start = time.perf_counter()
    network = match(trace(module, shape), shape)
    traced = time.perf_counter()
    usual = StageClassifier(network, dtype, CUDA)
    print(f"traced and matched in {traced - start:.2f} s, compiled in {time.perf_counter() - traced:.2f} s")
    x = (torch.rand((args.batch, *shape), device=CUDA) + 0.5 * torch.randn((args.batch, *shape), device=CUDA)).to(
        dtype, memory_format=torch.channels_last
    )
    best = _best_layouts(network, usual, dtype, x, args.layouts, args.repeats)

    for name, chosen in (("usual layouts", usual.layouts), ("best layouts", best)):
        classifier = StageClassifier(network, dtype, CUDA, chosen)
        for batch in sorted({args.batch, classifier.best_batch()}):
            rows = x[:1].expand(batch, -1, -1, -1).contiguous(memory_format=torch.channels_last)
            rows = rows + 0.1 * torch.randn_like(rows)
            _report(f"{name}, batch {batch}, labels of a noisy batch", lambda: classifier(rows), batch)  # noqa: B023
            _with_noise(name, classifier, rows, batch)
    if args.against:
        runtime = Runtime.resolve("cuda", dtype=args.dtype, compile=args.against, batch=2048)
        start = time.perf_counter()
        classify, runtime = prepare(module, 10, shape, runtime)
        print(f"--compile {args.against} ran as {runtime.compile}, prepared in {time.perf_counter() - start:.1f} s")
        _report(f"--compile {args.against}, batch 2048", lambda: classify(x[:2048]), 2048)


def _best_layouts(  # type: ignore[no-untyped-def]
    network, usual: StageClassifier, dtype: torch.dtype, x: torch.Tensor, tried: int, repeats: int
) -> list[Layout]:
    properties = torch.cuda.get_device_properties(CUDA)
    memory = properties.shared_memory_per_block_optin, properties.shared_memory_per_multiprocessor
    candidates = []
    for number, layout in enumerate(usual.layouts):
        fitting = layouts(layout.channels, layout.size, *memory)
        large = [found for found in fitting[tried:] if found.sums > 64][:2]  # few warps, many registers
        for found in [*fitting[:tried], *large]:
            for blocks in {found.resident_blocks, max(found.resident_blocks - 1, 1)}:
                candidates.append((number, replace(found, resident_blocks=blocks)))

    def build_with(candidate: tuple[int, Layout]) -> StageClassifier:
        number, layout = candidate
        return StageClassifier(network, dtype, CUDA, [*usual.layouts[:number], layout, *usual.layouts[number + 1 :]])

    with ThreadPoolExecutor(8) as pool:
        built = list(pool.map(build_with, candidates))
    best: dict[int, tuple[float, Layout]] = {}
    columns = "channels images rows column-warps threads blocks registers spilled traffic us/image TFLOP/s"
    print(" ".join(f"{column:>8}" for column in columns.split()))
    for (number, layout), classifier in zip(candidates, built, strict=True):
        kernel = classifier.kernels[number]
        timed = TimedKernel(kernel)
        classifier.kernels[number] = timed  # type: ignore[call-overload]
        for _ in range(3):
            classifier(x)
        timed.events.clear()
        for _ in range(repeats):
            classifier(x)
        microseconds = timed.milliseconds() * 1e3 / len(x)
        operations = _operations(network, number)
        numbers = (
            *(layout.channels, layout.images, layout.rows, layout.column_warps, layout.threads),
            *(kernel.resident_blocks(layout.threads), kernel.registers, kernel.spilled_bytes, round(layout.traffic)),
            *(f"{microseconds:.3f}", f"{operations / microseconds / 1e6:.0f}"),
        )
        names = columns.split()
        print(
            " ".join(f"{number:>{max(len(name), 8)}}" for number, name in zip(numbers, names, strict=True)), flush=True
        )
        best[number] = min(best.get(number, (microseconds, layout)), (microseconds, layout), key=lambda pair: pair[0])
    total = sum(microseconds for microseconds, _ in best.values())
    print(f"best of each stage: {total:.3f} us/image, {1e6 / total:,.0f} images/s")
    return [layout for _, layout in best.values()]


def _operations(network, number: int) -> float:  # type: ignore[no-untyped-def]
    """Additions and multiplications of a stage for one image."""
    size, total = network.shape[1], 0
    stages = network.stages()
    for index, stage in enumerate(stages):
        convolutions = [convolution for block in stage for convolution in (block.first, block.second)]
        if index:
            size //= convolutions[0].stride
            convolutions = convolutions[1:]
        if index == number:
            total = sum(2 * convolution.weight.numel() for convolution in convolutions) * size**2
            if index == 0:
                total += 2 * network.first.weight.numel() * size**2
            if index + 1 < len(stages):
                following = stages[index + 1][0]
                weights = following.first.weight.numel() + following.shortcut.weight.numel()
                total += 2 * weights * (size // following.first.stride) ** 2
    return total


def _with_noise(name: str, classifier: StageClassifier, rows: torch.Tensor, batch: int) -> None:
    levels = torch.randint(256, (9, *classifier.shape), device=CUDA)
    inputs = (levels / 255).to(memory_format=torch.channels_last)
    index = torch.stack([torch.arange(batch) % 9, torch.arange(batch) % 9, torch.arange(batch)]).to(CUDA, torch.int32)
    noisy = torch.empty_like(rows)

    def separate(draw: Draw) -> torch.Tensor:
        stream_for(CUDA, 0, draw).write(noisy, inputs, [Segment(0, 0, 0, batch)], index)
        return classifier(noisy)

    def fused(draw: Draw) -> torch.Tensor:
        return classifier.with_noise(inputs, index, count=batch, seed=0, draw=draw)

    for draw in (Additive("normal", 0.5), AdditiveGrid(0.5, 1 / 255)):
        same = torch.equal(separate(draw), fused(draw))
        _report(f"{name}, batch {batch}, {draw} by Triton", partial(separate, draw), batch)
        _report(f"{name}, batch {batch}, {draw} in the kernel (same labels: {same})", partial(fused, draw), batch)


def _report(name: str, work: Callable[[], object], batch: int, seconds: float = 0.5) -> None:
    with torch.inference_mode():
        for _ in range(3):
            work()
        torch.cuda.synchronize()
        start, done = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            for _ in range(10):
                work()
            torch.cuda.synchronize()
            done += 10 * batch
        print(f"{done / (time.perf_counter() - start):12,.0f} samples/s   {name}")


def _with_statistics(module: nn.Module) -> nn.Module:
    """Set the statistics of batch normalisation from the network's activations, as training does."""
    torch.manual_seed(0)
    for name, part in module.named_modules():
        if isinstance(part, nn.BatchNorm2d):
            part.momentum = None
            nn.init.uniform_(part.weight, *((0.1, 0.4) if name.endswith("bn2") else (0.5, 1.5)))
    module.train().to(CUDA)
    with torch.no_grad():
        for _ in range(2):
            module(torch.rand(64, 3, 32, 32, device=CUDA) + 0.5 * torch.randn(64, 3, 32, 32, device=CUDA))
    return module.eval().cpu()


if __name__ == "__main__":
    main()
