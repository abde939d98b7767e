"""Couples plans to a sampler: opens inputs, passes requests on, and closes each with its certificate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import ceil, prod

from torch import Tensor

from smoothcert.certificate import Certificate, conclude
from smoothcert.errors import InvalidInput
from smoothcert.noise import Gaussian
from smoothcert.plans.base import Look, Plan
from smoothcert.sampler.prepare import prepare
from smoothcert.sampler.runtime import Runtime
from smoothcert.sampler.sampler import Sampler
from smoothcert.sampler.voting import Voter

Input = tuple[int, Tensor, int | None]
"""Id, the input itself, its label."""

_WINDOW_BYTES = 2**30


class Engine:
    """Certifies a stream of inputs, several at a time.

    `open` inputs while `free`, and `step` to get those that are finished.
    """

    def __init__(self, sampler: Sampler, *, plan: Plan, noise: Gaussian) -> None:
        self.sampler = sampler
        self.plan = plan
        self.noise = noise
        self.opened = 0
        """Inputs opened so far."""
        self.committed = 0
        """Samples that the plans of these are known to want."""
        self._open: dict[int, _Input] = {}

    @property
    def free(self) -> int:
        return self.sampler.free

    @property
    def busy(self) -> int:
        """Inputs that are open."""
        return len(self._open)

    def open(self, id: int, x: Tensor, label: int | None) -> None:
        if x.shape != (expected := self.sampler.voter.inputs.shape[1:]):
            raise InvalidInput(f"input {id} has shape {tuple(x.shape)}; all must have one, here {tuple(expected)}")
        slot = self.sampler.open(id, x)
        self._open[slot] = _Input(id, label)
        self.opened += 1
        self._request(slot, self.plan.more((), self.noise))

    def step(self) -> list[Certificate]:
        """One batch further; the inputs that have enough."""
        finished = []
        for slot, look in self.sampler.advance():
            state = self._open[slot]
            state.looks.append(look)
            if more := self.plan.more(state.looks, self.noise):
                self._request(slot, more)
            else:
                finished.append(conclude(state.looks, plan=self.plan, noise=self.noise, id=state.id, label=state.label))
                self.sampler.close(slot)
                del self._open[slot]
        return finished

    def certify(self, inputs: Iterable[Input]) -> Iterator[Certificate]:
        """All of these inputs, in the order in which they finish; those before one that cannot be read are, too."""
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

    def _request(self, slot: int, samples: int) -> None:
        self.sampler.request(slot, samples)
        self.committed += samples


@dataclass
class _Input:
    id: int
    label: int | None
    looks: list[Look] = field(default_factory=list)


def build_engine(
    module: Callable[[Tensor], Tensor],
    *,
    classes: int,
    shape: tuple[int, ...],
    noise: Gaussian,
    plan: Plan,
    runtime: Runtime,
    seed: int,
    say: Callable[[str], None] = lambda message: None,
) -> tuple[Engine, Runtime]:
    """An engine for inputs of this shape, and the runtime with its batch size settled."""
    plan.check(noise)
    classify, runtime = prepare(module, classes, shape, runtime, say)
    return assemble(classify, classes=classes, shape=shape, noise=noise, plan=plan, runtime=runtime, seed=seed), runtime


def assemble(
    classify: Callable[[Tensor], Tensor],
    *,
    classes: int,
    shape: tuple[int, ...],
    noise: Gaussian,
    plan: Plan,
    runtime: Runtime,
    seed: int,
) -> Engine:
    """An engine around a classifier that was prepared for this shape and runtime."""
    voter = Voter(
        classify,
        noise=noise,
        shape=shape,
        classes=classes,
        slots=_window(plan.more((), noise), runtime.batch, shape),
        batch=runtime.batch,
        seed=seed,
        device=runtime.torch_device,
        dtype=runtime.torch_dtype,
        memory_format=runtime.memory_format(shape),
    )
    return Engine(Sampler(voter), plan=plan, noise=noise)


def _window(first_look: int, batch: int, shape: tuple[int, ...]) -> int:
    """Inputs to keep open: enough first looks for two batches, so that one can be read back while the other runs."""
    wanted = 2 * ceil(batch / first_look) + 4
    return max(min(wanted, _WINDOW_BYTES // (4 * prod(shape))), 2)
