"""Connect a plan to a sampler: open inputs, request the samples that the plan wants, and return certificates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import ceil, prod

from torch import Tensor

from smoothcert.device.runtime import Runtime
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.plans import Case, Certificate, Look, Plan
from smoothcert.sampling.sampler import Sampler
from smoothcert.sampling.voting import VoteCounter
from smoothcert.smoothed.prepare import prepare

Input = tuple[int, Tensor, int | None]
"""The number of an input, the input itself, and its label."""

_WINDOW_BYTES = 2**30
"""Memory for open inputs, at most."""
_GRID_ROUNDING = 2.0**-22
"""How far a value up to 1 may be from a multiple of the step: four float32 roundings. Values that were scaled, or
normalised and scaled back, need half of that. The noise is added to the multiple, so the certificate is about it."""


class Engine:
    """Certifies a stream of inputs, several at a time.

    Call `open` while there are `free` slots, and `step` to get the inputs that are finished.

    Args:
        sampler: Turns requests into votes.
        plan: Decides how many samples an input gets.
        noise: The smoothing noise.
    """

    def __init__(self, sampler: Sampler, *, plan: Plan, noise: Noise) -> None:
        self.sampler = sampler
        self.plan = plan
        self.noise = noise
        self.opened = 0
        """Inputs opened so far."""
        self.committed = 0
        """Samples that the plan has requested so far for these inputs."""
        self._open: dict[int, _OpenInput] = {}

    @property
    def free(self) -> int:
        """How many more inputs can be opened."""
        return self.sampler.free

    @property
    def busy(self) -> int:
        """The number of open inputs."""
        return len(self._open)

    def open(self, id: int, x: Tensor, label: int | None) -> None:
        """Open an input and request its first samples."""
        if x.shape != (expected := self.sampler.counter.inputs.shape[1:]):
            raise InvalidInput(f"input {id} has shape {tuple(x.shape)}, but the first input has {tuple(expected)}")
        if self.plan.known_labels and label is None:
            raise InvalidInput(f"input {id} has no label, and known_labels=True needs one for every input")
        _check_grid(id, x, self.noise)
        opened = _OpenInput(id, label, self.plan.follow((), self.noise, label))
        self._check_request(opened)
        slot = self.sampler.open(id, x)
        self._open[slot] = opened
        self.opened += 1
        self._request(slot, opened.case.more)

    def step(self) -> Iterator[Certificate]:
        """Run one batch, and give the certificates of inputs that have enough samples, also if a later input fails."""
        for slot, look in self.sampler.advance():
            opened = self._open[slot]
            opened.looks.append(look)
            if more := opened.case.add(look):
                self._check_request(opened)
                self._request(slot, more)
                continue
            self.sampler.close(slot)
            del self._open[slot]
            proof = opened.case.proof()
            yield Certificate.from_proof(
                proof, opened.looks, plan=self.plan, noise=self.noise, id=opened.id, label=opened.label
            )

    def certify(self, inputs: Iterable[Input]) -> Iterator[Certificate]:
        """Certify inputs, in the order in which they finish.

        If an input cannot be read, the ones before it are finished first; then its error is raised.
        """
        waiting = iter(inputs)
        exhausted = False
        unreadable: Exception | None = None
        while self.busy or not exhausted:
            while self.free and not exhausted:
                try:
                    if (following := next(waiting, None)) is None:
                        exhausted = True
                    else:
                        self.open(*following)
                except Exception as error:
                    exhausted, unreadable = True, error
            yield from self.step()
        if unreadable:
            raise unreadable

    def _check_request(self, opened: _OpenInput) -> None:
        """Refuse a plan of the user that would never end: without samples, or with more than its ceiling."""
        asked, most = opened.case.more + sum(look.samples for look in opened.looks), self.plan.most_samples
        if not 0 < asked <= most:
            raise InvalidInput(
                f"{type(self.plan).__name__}.request asks for {asked:,} samples of input {opened.id}, but the plan has "
                f"{f'at most {most:,}' if asked else 'no pilot'}"
            )

    def _request(self, slot: int, samples: int) -> None:
        self.sampler.request(slot, samples)
        self.committed += samples


@dataclass
class _OpenInput:
    """What the engine knows about an open input."""

    id: int
    label: int | None
    case: Case
    looks: list[Look] = field(default_factory=list)


def build_engine(
    module: Callable[[Tensor], Tensor],
    *,
    classes: int,
    shape: tuple[int, ...],
    noise: Noise,
    plan: Plan,
    runtime: Runtime,
    seed: int,
    say: Callable[[str], None] = lambda message: None,
) -> tuple[Engine, Runtime]:
    """Prepare the classifier and make an engine; returns it with the runtime, whose batch size is chosen."""
    noise = noise.for_shape(shape)
    plan = plan.for_noise(noise)
    plan.check(noise)
    classify, runtime = prepare(module, classes, noise.draw.output_shape(shape), runtime, say, draw=noise.draw)
    return assemble(classify, classes=classes, shape=shape, noise=noise, plan=plan, runtime=runtime, seed=seed), runtime


def assemble(
    classify: Callable[[Tensor], Tensor],
    *,
    classes: int,
    shape: tuple[int, ...],
    noise: Noise,
    plan: Plan,
    runtime: Runtime,
    seed: int,
    flexible: bool = False,
) -> Engine:
    """Make an engine for a classifier that is already prepared for this shape and runtime."""
    counter = VoteCounter(
        classify,
        noise=noise,
        shape=shape,
        classes=classes,
        slots=_window(plan.smallest_request or runtime.batch, runtime.batch, shape),
        batch=runtime.batch,
        seed=seed,
        device=runtime.torch_device,
        dtype=runtime.torch_dtype,
        memory_format=runtime.memory_format(shape),
        flexible=flexible,
    )
    return Engine(Sampler(counter), plan=plan, noise=noise)


def _check_grid(id: int, x: Tensor, noise: Noise) -> None:
    """Raise if a noise needs values on a grid and the input has others."""
    if noise.grid is None:
        return
    step, largest = noise.grid
    exact = x.double()
    off_grid = ((exact / step).round() * step - exact).abs() > _GRID_ROUNDING * exact.abs().clamp(min=1)
    if largest is not None:
        off_grid |= (x < 0) | (x > largest)
    if bool(off_grid.any()):
        top = "" if largest is None else f" from 0 to {largest:g}"
        raise InvalidInput(
            f"input {id} has the value {float(x[off_grid][0]):g}, but {noise} needs multiples of "
            f"1/{1 / step:.6g}{top}: round the inputs, or use another noise"
        )


def _window(request: int, batch: int, shape: tuple[int, ...]) -> int:
    """How many inputs to keep open.

    Their smallest requests should fill two batches, so that the host reads the votes of one while the other runs.
    """
    wanted = 2 * ceil(batch / request) + 4
    return max(min(wanted, _WINDOW_BYTES // (4 * prod(shape))), 2)
