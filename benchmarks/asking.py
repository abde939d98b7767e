"""What the votes of a run answer beside the class: published votes of all classes, and six networks on CIFAR-10."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

import smoothcert as sc
from benchmarks.commands import smoothcert
from benchmarks.experiments import Inputs
from smoothcert.data.groups import read_levels
from smoothcert.plans.votes import ManyVotes
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import Manifest
from smoothcert.tasks.replay import from_votes, simulate

SIGMA = 0.25
RADII = (0, 0.25, 0.5, 0.75)
NETWORK_SAMPLES = 20_000
LEVELS = {
    "kind": {"vehicle": "0,1,8,9", "animal": "2-7"},
    "group": {
        "plane or ship": "0,8",
        "car or truck": "1,9",
        "cat or dog": "3,5",
        "deer or horse": "4,7",
    },
}
"""Groups of the classes of CIFAR-10, from coarse to fine."""


def published(inputs: Inputs, *, log: str, repeats: int) -> dict[str, Any]:
    """Questions to published votes: certified accuracy, shares of the finest answer, samples and seconds."""
    assert inputs.logs is not None
    table = np.loadtxt(inputs.logs / log, dtype=int)
    votes = table[:, :-1]
    label = table[:, -1]
    run = _run_of(inputs.work / "votes", votes, label)
    answers = {
        "the label alone": run,
        "top 2": sc.ask(run, top=2),
        "top 3": sc.ask(run, top=3),
        "top 5": sc.ask(run, top=5),
        "six groups": sc.ask(run, groups=LEVELS["group"]),
        "animal or vehicle": sc.ask(run, groups=LEVELS["kind"]),
    }
    levels = sc.ask(run, groups=LEVELS, finest=True, radii=[0.5])
    larger = _run_of(inputs.work / "larger", np.tile(votes, (repeats, 1)), np.tile(label, repeats))
    return {
        "rows": [
            {"question": question, "ca": _percent(results)} for question, results in answers.items()
        ],
        "finest": [_finest([100 * float(r.certified_accuracy([0.5])[0]) for r in levels])],
        "samples": [
            {"question": "ten classes", "samples": _samples(votes, label)},
            {"question": "animal or vehicle", "samples": _samples(*_grouped(votes, label))},
        ],
        "seconds": [
            {"inputs": len(one), "seconds": _seconds(one, inputs.work)} for one in (run, larger)
        ],
    }


def networks(inputs: Inputs, *, models: list[str], radius: float) -> dict[str, Any]:
    """The inputs of which nothing is proved at a radius: by the class alone, and by any level."""
    rows = []
    for model in models:
        run = sc.certify(
            "cifar-resnet110",
            f"cifar10:{inputs.data}",
            weights=f"{inputs.weights}/{model}.safetensors",
            sigma=float(model.split("-")[-1]),
            plan=sc.Fixed(NETWORK_SAMPLES, known_labels=True),
            skip=20,
            out=inputs.work / model,
        )
        coarse, *_ = sc.ask(run, groups=LEVELS, finest=True, radii=[radius])
        nothing = [100 - 100 * float(r.certified_accuracy([radius])[0]) for r in (run, coarse)]
        rows.append({"name": model, "class": nothing[0], "any": nothing[1]})
    return {"rows": rows}


def _run_of(folder: Path, votes: np.ndarray, label: np.ndarray) -> sc.Run:
    """A run of fixed sampling with these votes (inputs, classes)."""
    plan = sc.Fixed(int(votes[0].sum()), known_labels=True)
    noise = sc.Gaussian(SIGMA)
    manifest = Manifest(
        model="published votes",
        classes=votes.shape[1],
        data="published votes",
        data_hash="0" * 16,
        ids=tuple(range(len(votes))),
        noise=noise,
        plan=plan,
        seed=0,
        device="cpu",
        dtype="float32",
        compile="none",
        weights_hash="0" * 16,
        values=(0.0, 1.0),
    )
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier try
    folder.mkdir()
    with Journal(folder, write=True) as journal:
        journal.write_manifest(manifest.plain())
        with journal.transaction():
            for id, row in enumerate(votes.tolist()):
                look = sc.Look(sum(row), {c: count for c, count in enumerate(row) if count})
                certificate = sc.Certificate.from_votes(
                    [look], plan=plan, noise=noise, id=id, label=int(label[id])
                )
                journal.add(certificate, {})
    return sc.open_run(folder)


def _percent(results: sc.Results) -> dict[str, float]:
    shares = results.certified_accuracy(RADII).tolist()
    return {f"{radius:g}": 100 * share for radius, share in zip(RADII, shares, strict=True)}


def _finest(proved: list[float]) -> dict[str, float]:
    """How many inputs have each level as their finest answer, from what each level proves."""
    kind, group, own = proved
    return {"class": own, "group": group - own, "kind": kind - group, "nothing": 100 - kind}


def _grouped(votes: np.ndarray, label: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    [level] = read_levels(LEVELS["kind"], votes.shape[1], None)
    grouped = level.many(ManyVotes(votes.sum(axis=1), votes))
    return grouped.votes, np.array(level.of)[label]


def _samples(votes: np.ndarray, label: np.ndarray) -> float:
    """Average samples of deciding the radii with the runner-up."""
    plan = sc.AtRadii(RADII, bound="runner-up", known_labels=True)
    outcome = simulate(
        from_votes(votes, label), plan, noise=sc.Gaussian(SIGMA), radii=RADII, repetitions=10
    )
    return outcome.plan.samples


def _seconds(run: sc.Run, work: Path) -> float:
    """Seconds of a command that asks for the finest answer, start-up included."""
    groups = work / "groups.toml"
    groups.write_text("\n".join(map(_table_of, LEVELS)))
    start = time.perf_counter()
    smoothcert("ask", run.path, "--groups", groups, "--finest")
    return time.perf_counter() - start


def _table_of(level: str) -> str:
    """A level of the groups in TOML."""
    lines = [f'"{name}" = "{members}"' for name, members in LEVELS[level].items()]
    return "\n".join([f"[{level}]", *lines])
