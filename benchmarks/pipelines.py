"""Published pipelines: number formats, large denoisers with random weights, ensembles, and what it all costs."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import results
from benchmarks.bench import published_loop, rate_of, reference_of, sampling_rate
from benchmarks.cifar10 import CEILING, weights
from benchmarks.commands import row
from benchmarks.experiments import Inputs
from benchmarks.logs import replay
from benchmarks.unets import SHAPES, random_weights
from smoothcert import AtRadii, Fixed, Gaussian, Run, certify
from smoothcert.data import ArrayDataset, load_dataset
from smoothcert.device.runtime import noisy_images
from smoothcert.smoothed import Subject


def formats(
    inputs: Inputs, *, model: str, sigma: float, noisy: int, dtypes: list[str], seconds: float
) -> dict[str, Any]:
    """Labels that differ from those in float32 without TF32, on one noisy copy each, and samples per second."""
    rows = []
    for dtype in dtypes:
        settings = {"weights": weights(inputs, model), "noise": Gaussian(sigma), "dtype": dtype}
        differing = _differing(
            Subject(None, **settings, batch=1000), f"cifar10:{inputs.data}", noisy
        )
        rate = sampling_rate(Subject(None, **settings), seconds=seconds)
        rows.append({"format": dtype, "differing": 100 * differing, "rate": rate})
    return {"rows": rows}


@torch.inference_mode()
def _differing(subject: Subject, data: str, noisy: int) -> float:
    dataset = load_dataset(data)
    subject = subject.bind(dataset, ())
    ready = subject.ready
    reference = reference_of(subject.classifier, ready.runtime)
    device = ready.runtime.torch_device
    generator = torch.Generator(device).manual_seed(0)
    images = torch.stack([x for x, _ in (dataset[i] for i in range(min(len(dataset), noisy)))])
    images = images.to(device)
    differing = 0
    for first in range(0, noisy, ready.runtime.batch):
        x = images[torch.arange(first, first + ready.runtime.batch, device=device) % len(images)]
        x = x + subject.noise.deviation * torch.randn(x.shape, generator=generator, device=device)
        reduced = x.to(ready.runtime.torch_dtype)
        labels = ready.classify(reduced.to(memory_format=ready.runtime.memory_format(x.shape[1:])))
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            differing += int((labels != reference(x)).sum())
    return differing / noisy


def behind_denoiser(
    inputs: Inputs,
    *,
    unet: str,
    classifier: str,
    resize: str,
    sigma: float,
    dtype: str,
    batch: int,
    seconds: float,
) -> dict[str, Any]:
    """Samples per second of a classifier behind a denoiser, both with random weights, against the usual loop."""
    file = inputs.work / "unet.pt"
    state = random_weights(SHAPES[unet])
    torch.save(state, file)
    size = SHAPES[unet].size
    noise = np.random.default_rng(0)
    dataset = ArrayDataset(
        noise.integers(256, size=(4, 3, size, size), dtype=np.uint8), name="random"
    )
    subject = Subject(
        classifier,
        weights="none",
        denoiser=f"openai:{file}",
        resize=resize,
        noise=Gaussian(sigma),
        dtype=dtype,
    ).bind(dataset, ())
    pictures = torch.stack([dataset[i][0] for i in range(len(dataset))])
    ours = _our_rates(subject, pictures[0], seconds)
    torch.cuda.empty_cache()
    device = subject.runtime.torch_device
    step = partial(published_loop(subject, pictures.to(device)), batch)
    loop = rate_of(step, batch, device, seconds)
    millions = sum(map(torch.numel, state.values())) / 1e6
    named = {"denoiser": unet, "millions": millions, "classifier": classifier}
    return {"rows": [named | ours | {"loop": loop, "times loop": ours["rate"] / loop}]}


def _our_rates(subject: Subject, x: Tensor, seconds: float) -> dict[str, Any]:
    """Samples per second of the classifier alone, and of fixed sampling of one input."""
    ready = subject.prepare()
    runtime = ready.runtime
    device = runtime.torch_device
    batch = noisy_images(subject.noisy_shape, runtime)  # zeros take less power, so less time
    with torch.inference_mode():
        alone = rate_of(lambda: ready.classify(batch), len(batch), device, seconds)
    full_batches = max(round(alone * seconds / len(batch)), 1)

    def certify_one(batches: int) -> None:
        plan = Fixed(batches * len(batch), pilot=len(batch))
        list(ready.engine(plan).certify([(0, x, None)]))

    certify_one(1)  # the first one loads kernels
    rows = (full_batches + 1) * len(batch)
    rate = rate_of(lambda: certify_one(full_batches), rows, device, 0)
    return {
        "format": runtime.dtype,
        "runs as": runtime.compile,
        "batch": len(batch),
        "alone": alone,
        "rate": rate,
    }


def networks(
    inputs: Inputs, *, models: dict[str, str], sigma: float, radii: list[float], seconds: float
) -> dict[str, Any]:
    """Certified accuracy at radii with known labels, and samples per second, of networks side by side."""
    rows = []
    for number, (name, files) in enumerate(models.items()):
        settings = {"weights": files.format(**vars(inputs)), "noise": Gaussian(sigma)}
        done = certify(
            Subject(None, **settings),
            f"cifar10:{inputs.data}",
            plan=AtRadii(radii, CEILING, known_labels=True),
            skip=20,
            out=inputs.work / str(number),
        )
        assert isinstance(done, Run)
        rate = sampling_rate(Subject(None, **settings), seconds=seconds)
        rows.append(row(done, radii, name=name) | {"rate": rate})
    for each in rows:
        each["cost"] = rows[0]["rate"] / each["rate"]
    return {"rows": rows}


def costs(inputs: Inputs, *, pipelines: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Hours for whole data sets, from measured speeds and from the samples that a published log needs."""
    rows = []
    for name, settings in pipelines.items():
        measured = results.read(settings["speed"])
        assert measured is not None, f"run {settings['speed']} before"
        [speed] = measured["numbers"]["rows"]
        images = settings["images"]
        ceiling = settings["ceiling"]
        needed = replay(inputs, f"{settings['log']} --samples {ceiling}")["samples"]
        hours = {
            "loop": images * ceiling / speed["loop"] / 3600,
            "fixed": images * ceiling / speed["rate"] / 3600,
            "radii": images * needed / speed["rate"] / 3600,
        }
        about = {"pipeline": name, "images": images, "ceiling": ceiling, "needed": needed}
        rows.append(about | {"hours": hours, "times": hours["loop"] / hours["radii"]})
    return {"rows": rows}
