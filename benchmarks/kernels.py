"""The time that each kernel takes while inputs are certified.

    python benchmarks/kernels.py --model fashion-cnn --data fashion-mnist --sigma 0.25
    python benchmarks/kernels.py --weights W --data cifar10:DIR --sigma 0.5 --compile max

This script certifies a few inputs to warm up, and then as many again under torch's profiler. It prints the kernels of
the device (on a CPU: the operations) with their time and share, and the share of the time in which the device was busy.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch.profiler import ProfilerActivity, profile

from smoothcert import Gaussian, InputSpecific
from smoothcert.data import load_dataset
from smoothcert.device.runtime import synchronize
from smoothcert.smoothed import Smoothed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--weights")
    parser.add_argument("--data", required=True)
    parser.add_argument("--sigma", type=float, required=True)
    parser.add_argument("--compile", default="auto")
    parser.add_argument("--batch", default="auto")
    parser.add_argument("--inputs", type=int, default=20)
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=15, help="kernels to print; the last line sums up the others")
    args = parser.parse_args()

    dataset = load_dataset(args.data)
    inputs = [(id, *dataset[id]) for id in range(2 * args.inputs)]
    smoothed = Smoothed(
        args.model, weights=args.weights, noise=Gaussian(args.sigma), compile=args.compile, batch=args.batch
    )
    prepared = smoothed.bind(dataset, ()).prepare()
    engine, runtime = prepared.engine(InputSpecific(args.samples)), prepared.subject.runtime
    list(engine.certify(inputs[: args.inputs]))
    synchronize(runtime.torch_device)

    cuda = runtime.torch_device.type == "cuda"
    before = engine.sampler.counted
    with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as profiled:
        start = time.perf_counter()
        list(engine.certify(inputs[args.inputs :]))
        synchronize(runtime.torch_device)
        wall = time.perf_counter() - start
    spent = {
        event.key: (event.self_device_time_total if cuda else event.self_cpu_time_total) / 1e6
        for event in profiled.key_averages()
    }
    ranked = sorted((item for item in spent.items() if item[1]), key=lambda item: -item[1])
    busy = sum(spent.values())
    sampled = engine.sampler.counted - before
    print(f"{runtime}, torch {torch.__version__}: {sampled:,} samples in {wall:.2f} s, busy {busy / wall:.1%} of it")
    rest = sum(seconds for _, seconds in ranked[args.rows :])
    for name, seconds in [*ranked[: args.rows], (f"{max(len(ranked) - args.rows, 0)} others", rest)]:
        print(f"{seconds / busy:7.1%} {seconds / sampled * 1e6:9.3f} us per sample   {name[:90]}")


if __name__ == "__main__":
    main()
