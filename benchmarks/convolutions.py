"""How near cuDNN's fused convolutions come to the limits of the device, for every convolution of a ResNet-50.

    python benchmarks/convolutions.py --batch 512

For each shape: microseconds per image of a convolution with bias and ReLU as one fused call, as separate operations,
and as a matrix product (1x1 only), and the limits by arithmetic and by memory (of an H200 unless told otherwise).
Below: the first convolution and the pooling in the form of torch and in that of the fast path.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn

from smoothcert.kernels.layers import convolution, kernels  # noqa: F401 (they register operations)

FUSED = torch.ops.smoothcert


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--teraflops", type=float, default=790, help="dense bfloat16")
    parser.add_argument("--terabytes", type=float, default=4.4, help="of memory per second")
    args = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    print(f"{'':28}" + "".join(f"{title:>12}" for title in ("fused", "separate", "product", "arithmetic", "memory")))
    with torch.inference_mode():
        for (channels_in, channels, side, stride, size), count in shapes().items():
            if channels_in % 8:
                continue
            row = times(args.batch, channels_in, channels, side, stride, size)
            out = size // stride
            row.append(2e-6 * channels_in * channels * side**2 * out**2 / args.teraflops)
            row.append(2e-6 * (channels_in * size**2 + channels * out**2) / args.terabytes)
            name = f"{count} x {channels_in} -> {channels}, {side}x{side} / {stride}, {size}"
            print(f"{name:28}" + "".join(f"{value:12.3f}" for value in row))
        first_layers(args.batch)


def shapes() -> Counter[tuple[int, ...]]:
    """(channels in, channels out, side, stride, image size) of all convolutions, and how often each occurs."""
    found: Counter[tuple[int, ...]] = Counter()

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        assert isinstance(layer, nn.Conv2d)
        size = inputs[0].shape[-1]
        found[layer.in_channels, layer.out_channels, layer.kernel_size[0], layer.stride[0], size] += 1

    network = torchvision.models.resnet50().eval()
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(note)
    network(torch.zeros(1, 3, 224, 224))
    return found


def times(batch: int, channels_in: int, channels: int, side: int, stride: int, size: int) -> list[float]:
    """Microseconds per image: one fused call, separate operations, a matrix product (NaN if it is none)."""
    x, weight = images(batch, channels_in, size), images(channels, channels_in, side)
    bias = torch.zeros(channels, device="cuda", dtype=torch.bfloat16)
    geometry = ((stride, stride), (side // 2, side // 2), (1, 1), 1)
    fused = seconds(lambda: FUSED.convolution_relu(x, weight, bias, None, *geometry))
    separate = seconds(lambda: F.conv2d(x, weight, bias, stride, side // 2).relu())
    product = float("nan")
    if side == stride == 1:
        rows, matrix = x.permute(0, 2, 3, 1).reshape(-1, channels_in), weight.flatten(1)
        product = seconds(lambda: torch._addmm_activation(bias, rows, matrix.t(), use_gelu=False))
    return [1e6 * value / batch for value in (fused, separate, product)]


def first_layers(batch: int) -> None:
    """The first convolution of 3 channels and the pooling, before and after the fast path has rewritten them."""
    x, weight, bias = images(batch, 3, 224), images(64, 3, 7), torch.zeros(64, device="cuda", dtype=torch.bfloat16)
    cells, wide = images(batch, 16, 115), images(64, 16, 4)
    hidden = images(batch, 64, 112)
    found = {
        "7x7 convolution, bias, ReLU": lambda: F.conv2d(x, weight, bias, 2, 3).relu(),
        "cells as channels": lambda: FUSED.space_to_depth(x, 2, 3, [115, 115], 16, [1.0] * 3, [0.0] * 3),
        "4x4 convolution, bias, ReLU": lambda: FUSED.convolution_relu(
            cells, wide, bias, None, (1, 1), (0, 0), (1, 1), 1
        ),
        "pooling by torch": lambda: F.max_pool2d(hidden, 3, 2, 1),
        "pooling": lambda: FUSED.max_pool(hidden, 3, 2, 1),
    }
    for name, work in found.items():
        print(f"{name:28}{1e6 * seconds(work) / batch:12.3f}")


def images(rows: int, channels: int, size: int) -> Tensor:
    x = torch.randn(rows, channels, size, size, device="cuda", dtype=torch.bfloat16)
    return x.to(memory_format=torch.channels_last)


def seconds(work: Callable[[], Tensor], repeats: int = 8) -> float:
    """Seconds of one call, on the device's clock."""
    for _ in range(3):
        work()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    torch.cuda.synchronize()
    return 1e-3 * start.elapsed_time(end) / repeats


if __name__ == "__main__":
    main()
