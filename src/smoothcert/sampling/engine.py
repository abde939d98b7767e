"""Connect a plan to a sampler: open inputs, request samples, and return certificates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil, inf, prod
from time import perf_counter

from torch import Tensor

from smoothcert.errors import InvalidInput, setting
from smoothcert.noises import Noise
from smoothcert.plans import Case, Certificate, Look, Rule
from smoothcert.plans.follow import add_each
from smoothcert.sampling.sampler import Sampler

Input = tuple[int, Tensor, int | None]
"""The number of an input, the input itself, and its label."""
Begun = tuple[int, Tensor, int | None, Sequence[Look]]
"""The same, and its votes so far."""

_WINDOW_BYTES = 2**30
"""The most memory for open inputs."""


class Engine:
    """Certifies a stream of inputs, several at a time.

    Call `open` while there are `free` slots, and `step` to get the inputs that are finished.

    Args:
        sampler: Turns requests into votes.
        plan: Decides how many samples an input gets.
        noise: The smoothing noise.
    """

    def __init__(self, sampler: Sampler, *, plan: Rule, noise: Noise) -> None:
        self.sampler = sampler
        self.plan = plan
        self.noise = noise
        self.opened = 0
        """Inputs opened so far."""
        self.committed = 0
        """Samples that the plan has requested so far for these inputs."""
        self.lowest = inf
        """The smallest value of these inputs."""
        self.highest = -inf
        """The largest value of these inputs."""
        self._open: dict[int, _OpenInput] = {}
        self._enough: list[_OpenInput] = []
        """Inputs that are continued and want no more samples."""

    @property
    def free(self) -> int:
        """How many more inputs can be opened."""
        return self.sampler.free

    @property
    def busy(self) -> int:
        """The number of open inputs."""
        return len(self._open) + len(self._enough)

    def open(self, id: int, x: Tensor, label: int | None, looks: Sequence[Look] = ()) -> None:
        """Open an input and request its first samples, or those after its votes so far."""
        opened = _OpenInput(id, Case(self.plan, self.noise, label, looks), list(looks))
        if opened.case.looks != len(looks):
            raise InvalidInput(
                "votes-of-another-plan",
                "the votes of input {id} so far are not those that {plan} asks for: "
                "choose another {out}",
                id=id,
                plan=str(self.plan),
                out=setting("out", "DIR"),
            )
        self.opened += 1
        self.lowest = min(self.lowest, float(x.min()))
        self.highest = max(self.highest, float(x.max()))
        if not opened.case.more:
            self._enough.append(opened)
            return
        slot = self.sampler.open(id, x, drawn=sum(look.samples for look in looks))
        self._open[slot] = opened
        self._request(slot, opened.case.more)

    def step(self) -> Iterator[Certificate]:
        """Run one batch, and yield the certificates of inputs that have enough samples.

        They are yielded one by one, so that the error of an input does not lose those before it.
        """
        while self._enough:
            yield _certificate(self._enough.pop())
        arrived = [(slot, self._open[slot], look) for slot, look in self.sampler.advance()]
        cases, looks = [opened.case for _, opened, _ in arrived], [look for *_, look in arrived]
        for (slot, opened, look), case in zip(arrived, add_each(cases, looks), strict=True):
            opened.looks.append(look)
            if case.more:
                self._request(slot, case.more)
                continue
            self.sampler.close(slot)
            del self._open[slot]
            yield _certificate(opened)

    def certify(
        self, inputs: Iterable[Input | Begun], *, end: float = inf
    ) -> Iterator[Certificate]:
        """Certify inputs, in the order in which they finish.

        If an input cannot be read, the ones before it are finished first; then its error is raised.
        When the clock (`time.perf_counter`) reaches `end`, open inputs get the certificates that
        their votes so far prove.
        """
        waiting = iter(inputs)
        exhausted = False
        unreadable: Exception | None = None
        while self.busy or not exhausted:
            if perf_counter() >= end:
                yield from map(_certificate, self._open.values())
                return
            while self.free and not exhausted and not self._enough:
                try:
                    following = next(waiting, None)
                    if following is None:
                        exhausted = True
                    else:
                        self.open(*following)
                except Exception as error:
                    exhausted = True
                    unreadable = error
            yield from self.step()
        if unreadable:
            raise unreadable

    def _request(self, slot: int, samples: int) -> None:
        self.sampler.request(slot, samples)
        self.committed += samples


@dataclass
class _OpenInput:
    """What the engine knows about an open input."""

    id: int
    case: Case
    looks: list[Look] = field(default_factory=list)


def _certificate(opened: _OpenInput) -> Certificate:
    return Certificate.from_case(opened.case, opened.looks, id=opened.id)


def window(request: int, batch: int, shape: tuple[int, ...]) -> int:
    """How many inputs to keep open.

    Their smallest requests should fill two batches, so that the host reads the votes of one while
    the other runs.
    """
    wanted = 2 * ceil(batch / request) + 4
    affordable = _WINDOW_BYTES // (4 * prod(shape))
    return max(min(wanted, affordable), 2)
