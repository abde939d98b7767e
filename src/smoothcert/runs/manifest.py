"""The manifest of a run: its settings, and the circumstances under which it was made."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import version
from itertools import pairwise
from typing import Any, Self, TypeAlias

from smoothcert._differences import check_settings, differences
from smoothcert._registry import describe, restore
from smoothcert._version import __version__
from smoothcert.errors import InvalidInput
from smoothcert.noises import Noise
from smoothcert.plans import Plan

Answer: TypeAlias = tuple[int, float]
"""The label that a model gives to an input, and its margin over the next label."""

_ROUNDING = 0.02
"""How much margins may differ, as a share of the largest one: other GPUs and numbers of threads round differently."""
_TIES = 0.05
"""The share of answers that may differ, because rounding decides ties."""
_MOST_IDS = 10**8
"""More inputs than any data set has. Without this limit, a damaged range could fill the memory."""
_NEEDED = ("plan", "noise", "seed", "ids")


@dataclass(frozen=True)
class Manifest:
    """What was certified and how, as the journal records it.

    Args:
        model: The name of the classifier, as the user gave it.
        classes: Its number of classes.
        data: The name of the data set.
        data_hash: The fingerprint of the data set.
        ids: The inputs to certify.
        noise: The smoothing noise.
        plan: The plan.
        seed: The key of the noise.
        device: The kind of device.
        dtype: The number format of the classifier.
        compile: How the classifier is compiled, as asked for.
        weights_hash: The hash of its weights, None if it has none.
        answers: The answers of the classifier to a few fixed noisy inputs.
        weights: The file with the weights, None if the user named none.
        batch: Rows per forward pass; 0 until it is chosen.
        fallback: How the classifier is really run, such as "stages" or "none", if not as `compile` asks; else None.
        forwarded: Rows that went through the classifier, padding included.
        started: When the run began.
        finished: When it was complete; None until then.
        circumstances: Versions and machine.
        shard: The part of the inputs, as in "3/16", if they are divided among several jobs.
        denoiser: Name, hash and description of the denoiser in front of the classifier, if there is one.
        stochastic: Whether the classifier is random by design; None in runs of earlier versions, which do not say.
    """

    model: str
    classes: int
    data: str
    data_hash: str
    ids: tuple[int, ...]
    noise: Noise
    plan: Plan
    seed: int
    device: str
    dtype: str
    compile: str
    weights_hash: str | None = None
    answers: list[Answer] | None = None
    weights: str | None = None
    batch: int = 0
    fallback: str | None = None
    forwarded: int = 0
    started: str | None = None
    finished: str | None = None
    circumstances: Mapping[str, Any] = field(default_factory=dict)
    shard: str | None = None
    denoiser: Mapping[str, str] | None = None
    stochastic: bool | None = None

    @property
    def classifier(self) -> str:
        """The name of the model, and of the denoiser in front of it."""
        return self.model if self.denoiser is None else f"{self.model} behind {self.denoiser['name']}"

    @property
    def compiled(self) -> str:
        """How the classifier was really run."""
        if self.fallback is None:
            return self.compile
        return "none" if " " in self.fallback else self.fallback  # earlier versions wrote a sentence

    def plain(self) -> dict[str, Any]:
        """The manifest as a dictionary for JSON; `parse` is the inverse."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in ("denoiser", "stochastic"):
            if values[name] is None:
                del values[name]
        return values | {
            "ids": compact_ids(self.ids),
            "noise": describe(self.noise),
            "plan": describe(self.plan),
            "circumstances": dict(self.circumstances),
        }

    @classmethod
    def parse(cls, values: Mapping[str, Any], where: object) -> Self:
        """Make a manifest from the values in a journal or an export, also of version 0.1.0."""
        if missing := [key for key in _NEEDED if values.get(key) is None]:
            raise InvalidInput(f"{where} is damaged: its manifest has no {', '.join(missing)}")
        known = {f.name for f in fields(cls)}
        kept = {key: value for key, value in values.items() if key in known}
        if values.get("compiled", values.get("compile")) != values.get("compile"):  # written by version 0.1.0
            kept["fallback"] = "compilation failed"
        unknown: dict[str, Any] = {
            "model": "",
            "classes": 0,
            "data": "",
            "data_hash": "",
            "device": "",
            "dtype": "",
            "compile": "",
        }
        try:
            kept |= {
                "ids": tuple(expand_ids(kept["ids"])),
                "noise": restore(kept["noise"]),
                "plan": restore(kept["plan"]),
                "batch": kept.get("batch") or 0,
            }
            if not isinstance(kept["noise"], Noise) or not isinstance(kept["plan"], Plan):
                raise TypeError("noise and plan have other types")
            if kept.get("denoiser") is not None:
                kept["denoiser"] = {key: str(kept["denoiser"][key]) for key in ("name", "hash", "description")}
            return cls(**(unknown | kept))
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidInput(f"{where}: its manifest cannot be read: {error}") from None

    def check_continues(self, recorded: Manifest, folder: object) -> None:
        """Raise if this manifest has other settings than the one in the folder. The error names every difference.

        A model or data set with the same content may have another name, because users move files. The inputs may be
        more than before, or fewer.
        """
        now, there = self.plain(), recorded.plain()
        ignored = {
            "answers",
            "weights",
            "batch",
            "fallback",
            "forwarded",
            "started",
            "finished",
            "circumstances",
            "shard",
        }
        for name, content in (("model", "weights_hash"), ("data", "data_hash")):
            if now[content] and now[content] == there[content]:
                ignored.add(name)
        if self.denoiser is None or recorded.denoiser is None:
            for values in (now, there):
                values["denoiser"] = values["denoiser"]["name"] if "denoiser" in values else None
        elif self.denoiser["hash"] == recorded.denoiser["hash"]:
            ignored.add("denoiser")
        if recorded.stochastic is None:
            ignored.add("stochastic")
        elif self.stochastic != recorded.stochastic:
            ignored.add("weights_hash")  # it differs for this reason
        if self.compile == recorded.compiled:
            ignored.add("compile")
        before, wanted = set(recorded.ids), set(self.ids)
        if before <= wanted or wanted <= before:
            ignored.add("ids")
        now, there = ({k: v for k, v in values.items() if k not in ignored} for values in (now, there))
        if not differences(there, now) and not same_answers(recorded.answers, self.answers):
            now |= {"what the model answers to the same inputs": "something else (has its code changed?)"}
        check_settings(folder, there, now, what="run")

    def draws(self) -> tuple[Any, ...]:
        """What determines the votes of a run. Runs with equal values have the same votes for the same samples."""
        same = (self.model, self.weights_hash, self.data_hash, self.seed, self.device, self.dtype)
        return (*same, describe(self.noise), self.denoiser and self.denoiser["hash"])

    def with_ids(self, ids: Sequence[int]) -> Self:
        """The same manifest for other inputs."""
        return replace(self, ids=tuple(ids))


def circumstances() -> dict[str, Any]:
    """Versions and machine, to be recorded."""
    versions = {name: version(name) for name in ("torch", "numpy", "scipy")}
    return {"smoothcert": __version__, "python": platform.python_version(), "platform": platform.platform()} | versions


def same_answers(there: Sequence[Answer] | None, now: Sequence[Answer] | None) -> bool:
    """Whether the labels and margins of a model are the same up to rounding; True if there are no answers to compare.

    >>> same_answers([(3, 1.0), (5, 0.001)], [(3, 1.001), (4, 0.001)])
    True
    >>> same_answers([(3, 1.0), (5, 0.001)], [(3, 0.9), (5, 0.001)])
    False
    """
    if there is None or now is None:
        return True
    rounding = _ROUNDING * max((margin for _, margin in [*there, *now]), default=0)
    others = [
        label
        for (label, margin), (label_now, margin_now) in zip(there, now, strict=False)
        if abs(margin - margin_now) > rounding or (label != label_now and max(margin, margin_now) > rounding)
    ]
    return len(there) == len(now) and len(others) <= _TIES * len(there)


def compact_ids(ids: Sequence[int]) -> list[int] | dict[str, int]:
    """Write evenly spaced ids as first, last and step, so that a manifest of 50,000 inputs stays readable."""
    if len(ids) > 2 and len({b - a for a, b in pairwise(ids)}) == 1:
        return {"first": ids[0], "last": ids[-1], "step": ids[1] - ids[0]}
    return list(ids)


def expand_ids(ids: Sequence[int] | Mapping[str, int]) -> list[int]:
    """The inverse of `compact_ids`.

    Raises:
        ValueError: The file is damaged, and these are not ids of inputs.

    >>> expand_ids(compact_ids([0, 20, 40, 60]))
    [0, 20, 40, 60]
    """
    if not isinstance(ids, Mapping):
        found = [int(id) for id in ids]
    else:
        step = ids["step"]
        spaced = range(ids["first"], ids["last"] + (1 if step > 0 else -1), step)
        if len(spaced) > _MOST_IDS:
            raise ValueError(f"its ids are damaged: {len(spaced):,} inputs")
        found = list(spaced)
    if min(found, default=0) < 0 or len(set(found)) < len(found):
        raise ValueError("its ids are damaged: they are not different numbers from 0 on")
    return found
