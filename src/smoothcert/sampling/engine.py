"""Connect a plan to a sampler: open inputs, request samples, and return certificates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, prod
from time import perf_counter

from torch import Tensor

from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.plans import Case, Cell, Certificate, Look, Rule
from smoothcert.plans.follow import add_each
from smoothcert.sampling.sampler import Sampler
from smoothcert.sampling.views import Views

Input = tuple[int, Tensor, int | None]
"""The number of an input, the input itself, and its label."""
Begun = tuple[int, Tensor, int | None, Sequence[Look]]
"""The same, and its votes so far."""

_WINDOW_BYTES = 2**30
"""The most memory for open inputs."""
_TOGETHER = 128
"""Looks at transformed pictures that are treated together, while there is other work."""


class Engine:
    """Certifies a stream of inputs, several at a time.

    Call `open` while there are `free` slots, and `step` to get the inputs that are finished.

    Args:
        sampler: Turns requests into votes.
        plan: Decides how many samples an input gets.
        noise: The smoothing noise.
        views: Shows transformed pictures, under a transformation.
    """

    def __init__(
        self, sampler: Sampler, *, plan: Rule, noise: Noise, views: Views | None = None
    ) -> None:
        self.sampler = sampler
        self.plan = plan
        self.noise = noise
        self.views = views
        self.opened = 0
        """Inputs opened so far."""
        self.committed = 0
        """Samples that the plan has requested so far for these inputs."""
        self.lowest = inf
        """The smallest value of these inputs."""
        self.highest = -inf
        """The largest value of these inputs."""
        self._open: dict[int, _OpenInput] = {}
        self._waiting: list[tuple[int, _OpenInput]] = []
        """Inputs that wait for another view, and their slots."""
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
                "the votes of input {id} so far are not those that {plan} asks for: choose "
                "another `out=DIR`",
                id=id,
                plan=str(self.plan),
            )
        self.opened += 1
        self.lowest = min(self.lowest, float(x.min()))
        self.highest = max(self.highest, float(x.max()))
        if not opened.case.more:
            self._enough.append(opened)
            return
        slot = self.sampler.open(id, x, drawn=sum(look.samples for look in looks))
        self._open[slot] = opened
        if self.views is not None:
            self.views.load(slot, x)
        self._go_on(slot, opened)

    def step(self) -> Iterator[Certificate]:
        """Run one batch, and yield the certificates of inputs that have enough samples.

        They are yielded one by one, so that the error of an input does not lose those before it.
        """
        while self._enough:
            yield _certificate(self._enough.pop())
        self._show_views()
        arrived = [(slot, self._open[slot], look) for slot, look in self._arrived()]
        looks = [opened.with_margin(look) for _, opened, look in arrived]
        cases = add_each([opened.case for _, opened, _ in arrived], looks)
        for (slot, opened, _), look, case in zip(arrived, looks, cases, strict=True):
            opened.looks.append(look)
            if case.more:
                self._go_on(slot, opened)
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

    def _arrived(self) -> list[tuple[int, Look]]:
        """The looks that are complete after the next batch.

        New views take the host about as long for many inputs as for one. So they wait for each
        other, as long as the device has full batches to go on with.
        """
        arrived = self.sampler.advance()
        while self.views is not None and self.sampler.full and len(arrived) < _TOGETHER:
            arrived += self.sampler.advance()
        return arrived

    def _go_on(self, slot: int, opened: _OpenInput) -> None:
        """Request more samples of an input, after its next view is shown."""
        if self.views is not None and opened.cell != opened.case.cell:
            self._waiting.append((slot, opened))
            return
        self.sampler.request(slot, opened.case.more)
        self.committed += opened.case.more

    def _show_views(self) -> None:
        """Show the views that inputs wait for, all at once."""
        if self.views is None or not self._waiting:
            return
        waiting = self._waiting
        self._waiting = []
        slots = [slot for slot, _ in waiting]
        cells = [opened.case.cell for _, opened in waiting]
        margins = self.views.show(slots, cells)
        for (slot, opened), cell, margin in zip(waiting, cells, margins, strict=True):
            opened.cell = cell
            opened.margin = margin
            self._go_on(slot, opened)


@dataclass
class _OpenInput:
    """What the engine knows about an open input."""

    id: int
    case: Case
    looks: list[Look]
    cell: Cell | None = None
    """The cell whose picture lies in the slot."""
    margin: float | None = None
    """The margin of this cell, until its first look has come."""

    def with_margin(self, look: Look) -> Look:
        """A look with the margin of its cell, if it is the first one at it."""
        if self.margin is None:
            return look
        margin = self.margin
        self.margin = None
        return replace(look, margin=margin)


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
