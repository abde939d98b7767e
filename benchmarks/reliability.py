"""What survives: runs that are killed, whose disk is full, or that lose a node, against a run that nobody disturbed."""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import smoothcert as sc
from benchmarks.experiments import Inputs
from benchmarks.halves import slow_halves
from benchmarks.results import ROOT
from smoothcert.executors import Executor, LocalExecutor, Status, choose_executor
from smoothcert.runs.journal import Journal

INPUTS = 2_000
MARK = "SMOOTHCERT_RELIABILITY"
"""A variable in the environment of all processes of a try, by which they are found."""
_NEW_USER, _NEW_MOUNTS, _REMOUNT = 0x10000000, 0x00020000, 32  # of Linux
_STOPPED = 3
"""The exit code of a run that gave up, because one input or three starts were hit too often. It can be resumed."""
_SESSION_SECONDS = 540
"""One call of an experiment ends after this time. The next call continues it."""


class Told(sc.Progress):
    """Writes the ids that were reported as saved to a pipe."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def update(self, certificate: sc.Certificate, status: Status) -> None:
        os.write(self.pipe, b"%d\n" % certificate.id)


Run = Callable[[Path, Executor, sc.Progress], object]
"""Certifies into a folder. It is the same call every time."""


def certify(out: Path, executor: Executor, progress: sc.Progress) -> None:
    """The run that is disturbed."""
    x = np.random.default_rng(0).random((INPUTS, 2), np.float32)
    data = x, (x[:, 0] > 0.5).astype(np.int64)
    plan, settings = sc.InputSpecific(1_000), {"sigma": 0.25, "batch": 1000, "progress": progress}
    sc.certify(slow_halves, data, plan=plan, out=out, executor=executor, **settings)


EXECUTORS: dict[str, tuple[Callable[[], Executor], float]] = {
    "local": (LocalExecutor, 0.3),
    "processes": (lambda: choose_executor("local", devices="cpu,cpu"), 4.0),
    "ray": (lambda: choose_executor("ray", workers=2), 8.0),
}
"""How each executor is made, and about how many seconds it needs to start."""


def kills(inputs: Inputs, *, executor: str, times: int) -> dict[str, Any]:
    """Kill runs at random moments, and resume them until they are complete: SIGKILL for all processes of the run, or
    for one worker, which the driver replaces.
    """
    make, start = EXECUTORS[executor]
    state, deadline = inputs.work / "state.json", time.monotonic() + _SESSION_SECONDS
    if state.is_file():
        found = json.loads(state.read_text())
    else:
        found = {
            "executor": executor,
            "kills": 0,
            "of runs": 0,
            "of workers": 0,
            "before sampling": 0,
        }
        found |= {"runs": 0, "stopped": 0, "certificates": 0, "lost": 0, "different": 0}
    expected, out = _undisturbed(inputs.work / "undisturbed"), inputs.work / "killed"
    while found["kills"] < times or out.exists():
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"{found['kills']} of {times} kills are done: run the same command again to go on"
            )
        rng = random.Random(f"{executor} {found['kills']} {found['runs']}")
        left = max(times - found["kills"], 0)
        code, told, killed = _try(
            out, make, rng, start if left else None, workers=executor != "local" and left > 1
        )
        found["kills"] += sum(killed.values())
        found["of runs"] += killed["run"]
        found["of workers"] += killed["worker"]
        saved = _ids(out)
        found["before sampling"] += bool(killed["run"] and not told)
        found["lost"] += len(told - saved)
        found["stopped"] += code == _STOPPED
        if code == 0:
            same = _certificates(out)
            found["runs"] += 1
            found["certificates"] += len(same)
            found["different"] += sum(same.get(id) != c for id, c in expected.items())
            shutil.rmtree(out)
        state.write_text(json.dumps(found))
    return {"rows": [found]}


def full_disks(inputs: Inputs, *, times: int) -> dict[str, Any]:
    """Certify on disks that are too small, make them larger, and certify again."""
    expected, out = _undisturbed(inputs.work / "undisturbed"), inputs.work / "copied"
    found = {"what": "full disks", "times": 0, "certificates": 0, "lost": 0, "different": 0}
    told, sizes = inputs.work / "told.json", random.Random(0)
    while found["times"] < times:
        size = int(2 ** sizes.uniform(5, 12))
        shutil.rmtree(out, ignore_errors=True)
        told.unlink(missing_ok=True)
        disk = inputs.work / "disk"
        disk.mkdir(exist_ok=True)
        if os.waitpid(_fork(lambda: _fill(disk, size, told, out), "full"), 0)[1]:  # noqa: B023
            raise RuntimeError(f"a run on a disk of {size} KB was not resumed")
        if told.is_file():  # else the disk was large enough
            _add(found, expected, out, json.loads(told.read_text()))
    return {"rows": [found]}


def _fill(disk: Path, size: int, told: Path, out: Path) -> None:
    """Mount a disk of so many KB, which only this process sees, certify until it is full, enlarge it, and certify."""
    libc, user, group = ctypes.CDLL(None, use_errno=True), os.getuid(), os.getgid()

    def mount(flags: int, options: str) -> None:
        if libc.mount(b"tmpfs", str(disk).encode(), b"tmpfs", flags, options.encode()):
            raise OSError(ctypes.get_errno(), "mount")

    if libc.unshare(_NEW_USER | _NEW_MOUNTS):
        raise OSError(ctypes.get_errno(), "unshare")
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"0 {user} 1"),
        ("gid_map", f"0 {group} 1"),
    ):
        Path(f"/proc/self/{name}").write_text(text)
    mount(0, f"size={size}k")
    ours, theirs = os.pipe()
    try:
        certify(disk / "run", LocalExecutor(), Told(theirs))
    except sc.SmoothcertError as error:
        print(error, file=sys.stderr)
        os.close(theirs)
        saved = _ids(disk / "run")
        told.write_text(json.dumps(len({int(id) for id in os.read(ours, 10**6).split()} - saved)))
    mount(_REMOUNT, "size=64m")
    certify(disk / "run", LocalExecutor(), sc.Progress())
    shutil.copytree(disk / "run", out)


def lost_nodes(inputs: Inputs, *, times: int, model: str | None = None) -> dict[str, Any]:
    """Take one of the two nodes of a Ray cluster away during a run; with a model, of a run on a GPU that they share."""

    def on_a_gpu(out: Path, executor: Executor, progress: sc.Progress) -> None:
        settings: dict[str, Any] = {
            "weights": inputs.weights / f"{model}.safetensors",
            "sigma": 0.5,
            "batch": 2048,
        }
        data, plan = f"cifar10:{inputs.data}", sc.InputSpecific(100_000)
        sc.certify(
            None,
            data,
            plan=plan,
            skip=20,
            out=out,
            executor=executor,
            progress=progress,
            **settings,
        )

    run: Run = on_a_gpu if model else certify
    expected, out = _undisturbed(inputs.work / "undisturbed", run), inputs.work / "lost"
    what = f"lost Ray nodes, {model} on a GPU" if model else "lost Ray nodes"
    found = {"what": what, "times": 0, "certificates": 0, "lost": 0, "different": 0}
    for number in range(times):
        shutil.rmtree(out, ignore_errors=True)
        after = random.Random(number).randrange(len(expected) // 2)
        lose_a_node = partial(_lose_a_node, out, run, after, gpu=bool(model))
        _, ended = os.waitpid(_fork(lose_a_node, f"node {number}"), 0)
        _end_others(f"node {number}")
        if ended:
            raise RuntimeError("a run on a cluster that lost a node failed")
        _add(found, expected, out, 0)
    return {"rows": [found]}


class _Removal(sc.Progress):
    """Takes a node away after some certificates."""

    def __init__(self, after: int, remove: Callable[[], None]) -> None:
        self.left, self.remove = after, remove

    def update(self, certificate: sc.Certificate, status: Status) -> None:
        self.left -= 1
        if self.left == 0:
            self.remove()


def _lose_a_node(out: Path, run: Run, after: int, *, gpu: bool) -> None:
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 100 * 2**20, "include_dashboard": False}
    soon = {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 500,
        "health_check_failure_threshold": 3,
    }
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": soon, **small}
    )
    nodes = [cluster.add_node(num_cpus=1, num_gpus=int(gpu), **small) for _ in range(2)]
    removal = _Removal(after, lambda: cluster.remove_node(nodes[1], allow_graceful=False))
    run(out, choose_executor("ray", address=cluster.address, workers=2), removal)


def _add(found: dict[str, Any], expected: dict[int, sc.Certificate], out: Path, lost: int) -> None:
    """Count a run that was disturbed and is complete now."""
    same = _certificates(out)
    found["times"] += 1
    found["certificates"] += len(same)
    found["lost"] += lost
    found["different"] += sum(same.get(id) != c for id, c in expected.items())


def _try(
    out: Path,
    make: Callable[[], Executor],
    rng: random.Random,
    start: float | None,
    *,
    workers: bool,
) -> tuple[int, set[int], dict[str, int]]:
    """Certify in a process of its own, and kill workers of it, and then all of it: in one of four cases during its
    start, else in the second after its first certificate. Returns its exit code, the inputs that it reported as saved,
    and what was killed.
    """
    killed, mark = {"run": 0, "worker": 0}, f"{os.getpid()}-{time.monotonic_ns()}"
    ours, theirs = os.pipe()
    pid = _fork(lambda: certify(out, make(), Told(theirs)), mark)
    os.close(theirs)
    os.set_blocking(ours, False)
    told, moment = (
        b"",
        time.monotonic() + rng.uniform(0, start or 0) if start and rng.random() < 0.25 else None,
    )
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        told += _read(ours)
        if moment is None and start and told:
            moment = time.monotonic() + rng.uniform(0, 1)
        if moment is not None and time.monotonic() >= moment:
            found = (
                [p for p in _marked(mark) if _is_worker(p)]
                if workers and rng.random() < 0.6
                else []
            )
            if found:
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(found), signal.SIGKILL)
                    killed["worker"] += 1
                moment = time.monotonic() + rng.uniform(0, 2)
                continue
            os.killpg(pid, signal.SIGKILL)
            killed["run"] += 1
            ended = os.waitpid(pid, 0)
            break
        time.sleep(0.005)
    told += _read(ours)
    os.close(ours)
    _end_others(mark)
    code = os.waitstatus_to_exitcode(ended[1])
    if not killed["run"] and code not in (0, _STOPPED):
        raise RuntimeError("a run failed by itself")
    return code, {int(id) for id in told.split()}, killed


def _fork(work: Callable[[], None], mark: str) -> int:
    """Work in a new process group. A fork needs no seconds to import torch, so most kills hit what matters."""
    if pid := os.fork():
        os.setpgid(pid, pid)  # here as well, so that the group can be killed at once
        return pid
    code = 1
    try:
        os.setpgid(0, 0)
        os.environ |= {MARK: mark, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        work()
        code = 0
    except sc.SmoothcertError as error:
        code = (
            _STOPPED
            if "times, the last time with" in str(error) or "could not start" in str(error)
            else 1
        )
        print(error, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _read(pipe: int) -> bytes:
    found = b""
    with suppress(BlockingIOError):
        while part := os.read(pipe, 65536):
            found += part
    return found


def _marked(mark: str) -> list[int]:
    """The processes of a try. One that was forked has the mark in its parent."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with suppress(OSError):
                if f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
    return found


def _is_worker(pid: int) -> bool:
    with suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"spawn_main" in command or command.startswith((b"ray::Worker", b"ray::IDLE"))
    return False


def _end_others(mark: str) -> None:
    """End what a killed driver left behind, such as the processes of its Ray, and wait for it."""
    for _ in range(200):
        if not (left := _marked(mark)):
            return
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _undisturbed(out: Path, run: Run = certify) -> dict[int, sc.Certificate]:
    if not out.exists():
        pid = _fork(lambda: run(out, LocalExecutor(), sc.Progress()), "undisturbed")
        if os.waitpid(pid, 0)[1]:
            raise RuntimeError("the undisturbed run failed")
    return _certificates(out)


def _certificates(out: Path) -> dict[int, sc.Certificate]:
    return {c.id: replace(c, seconds=0.0) for c in sc.open_run(out)}


def _ids(out: Path) -> set[int]:
    try:
        with Journal(out) as journal:
            return journal.ids()
    except sc.InvalidInput:  # it was killed before it wrote anything
        return set()
