"""How long the CPU threads of torch keep their cores busy while they wait for each other."""

from __future__ import annotations

import os
import sys
from threading import Event, Thread

import torch

_started = False


def let_threads_rest(device: torch.device) -> None:
    """Make waiting threads sleep soon instead of spinning, as `GOMP_SPINCOUNT=1000` does.

    The OpenMP library of torch reads this variable when torch is imported, which has often happened before. Threads
    then spin for so long that, on shared cores, the thread that they wait for does not get a core. The library spins
    for a short time only while it manages more threads than there are cores. So we start a second team of threads,
    which sleeps as long as this process lives.
    """
    global _started
    chosen = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys()  # by the user, or by our command line
    if _started or chosen or device.type != "cpu" or sys.platform != "linux" or torch.get_num_threads() == 1:
        return
    _started = True
    ready = Event()
    Thread(target=_hold_a_team, args=(ready,), daemon=True, name="smoothcert-openmp").start()
    ready.wait()


def _hold_a_team(ready: Event) -> None:
    torch.ones(2**20).add_(1)  # large enough for torch to use all threads
    ready.set()
    Event().wait()
