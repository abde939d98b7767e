import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="libgomp is the OpenMP library of torch on Linux only"
)

PROGRAM = """
import threading
import torch
import smoothcert as sc
model = torch.nn.Linear(4, 2).eval()
sc.Smoothed(model, sigma=0.5, device="cpu", batch=100).predict(torch.zeros(1, 4), samples=100)
print(sum(thread.name == "smoothcert-openmp" for thread in threading.enumerate()))
"""


@pytest.mark.parametrize(
    ("settings", "sleeping_teams"),
    [
        ({}, "1"),
        ({"GOMP_SPINCOUNT": "1000"}, "0"),
        ({"OMP_WAIT_POLICY": "active"}, "0"),
        ({"OMP_NUM_THREADS": "1"}, "0"),
    ],
)
def test_busy_waiting_is_short_although_torch_was_imported_before_unless_the_user_decides(
    settings, sleeping_teams
):
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment | {"OMP_NUM_THREADS": "2"} | settings,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == sleeping_teams
