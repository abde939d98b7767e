"""Test that a plan and a noise from a file of the user work like built-in ones."""

import json
import runpy
import shutil
import signal
import subprocess
import sys
import warnings
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from tests.users_code import forget

from smoothcert.cli import main

EXAMPLES = Path(__file__).parents[1] / "examples"

SCRIPT = """
import os, sys
import smoothcert as sc
from {module} import {name}

class KillAfterFive(sc.Progress):
    left = 5
    def update(self, certificate, status):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), 9)

progress = KillAfterFive() if sys.argv[1] == "kill" else sc.Progress()
settings = dict(limit=12, out="run", device="cpu", dtype="float32", batch=300, progress=progress)
sc.certify("fashion-cnn", "fashion-mnist", {arguments}, **settings)
"""
CASES = {
    "plan": ("own_plan", "ThreeLooks", "noise=sc.Gaussian(0.25), plan=ThreeLooks()"),
    "noise": (
        "own_noise",
        "UniformNoise",
        "noise=UniformNoise(0.25 * 3**0.5), plan=sc.InputSpecific(1_000)",
    ),
}
OPTIONS = {
    "plan": ["--method", "three-looks", "--sigma", "0.25"],
    "noise": ["--samples", "1000", "--noise", f"uniform-noise:{0.25 * 3**0.5!r}"],
}


@contextmanager
def started(folder, case, *argv):
    """What a new process would begin with: the folder, the arguments, and none of the user's modules."""
    forget(CASES[case][0])
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as err,
    ):
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        patch.setattr(sys, "argv", list(argv))
        patch.setattr(
            warnings, "showwarning", warnings.showwarning
        )  # `main` replaces it; this restores it
        yield patch, out, err
    forget(CASES[case][0])


def script(folder, case, what):
    with started(folder, case, "mine.py", what) as (patch, _, _):
        patch.syspath_prepend(folder)
        runpy.run_path("mine.py", run_name="__main__")


def command(folder, case, *arguments, code=0):
    with (
        started(folder, case, "smoothcert", *arguments) as (_, out, err),
        pytest.raises(SystemExit) as exit,
    ):
        main()
    assert exit.value.code == code, err.getvalue()
    return out.getvalue(), err.getvalue()


def smoothcert(folder, case, *arguments):
    """The output of a command that is told where the plan or noise is."""
    return command(folder, case, "--import", f"{CASES[case][0]}.py", *arguments)[0]


def process(folder, *arguments, code=0):
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=list(CASES))
def case(request):
    return request.param


@pytest.fixture(scope="module")
def folder(case, tmp_path_factory):
    """A run that was killed after five inputs and resumed by the same script."""
    folder = tmp_path_factory.mktemp(case)
    module, name, arguments = CASES[case]
    shutil.copy(EXAMPLES / f"{module}.py", folder)
    (folder / "mine.py").write_text(SCRIPT.format(module=module, name=name, arguments=arguments))
    process(folder, "mine.py", "kill", code=-signal.SIGKILL)
    killed = json.loads(smoothcert(folder, case, "table", "run", "--json"))["runs"][0]
    assert (killed["inputs"], killed["asked"]) == (5, 12)
    script(folder, case, "resume")
    return folder


def test_a_killed_run_is_resumed_to_the_certificates_of_an_uninterrupted_one(
    folder, case, tmp_path
):
    module, _, _ = CASES[case]
    for file in (f"{module}.py", "mine.py"):
        shutil.copy(folder / file, tmp_path)
    script(tmp_path, case, "whole")

    def certificates(where):
        smoothcert(where, case, "export", "run", "--out", "run.json")
        rows = json.loads((where / "run.json").read_text())["certificates"]
        return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]

    assert certificates(folder) == certificates(tmp_path)


def test_it_can_be_audited_tabulated_reported_and_replayed(folder, case):
    audited = json.loads(smoothcert(folder, case, "audit", "run", "--redraw", "2", "--json"))
    assert (audited["checked"], audited["redrawn"], audited["holds"]) == (12, 2, True)
    shown = smoothcert(folder, case, "table", "run")
    assert ("three looks" if case == "plan" else "input-specific") in shown
    smoothcert(folder, case, "report", "run", "--out", "page.html", "--figures", "figures")
    assert ("(l2)" if case == "plan" else "(l1)") in (folder / "page.html").read_text()
    assert (folder / "figures" / "certified-accuracy.png").exists()
    replayed = json.loads(smoothcert(folder, case, "replay", "run", *OPTIONS[case], "--json"))
    assert replayed["inputs"] == 12
    assert 0 < replayed["average_samples"] < 5_000


def test_processes_find_its_module(tmp_path):
    (tmp_path / "mine").mkdir()
    shutil.copy(EXAMPLES / "own_plan.py", tmp_path / "mine")
    small = [
        "--model",
        "fashion-cnn",
        "--data",
        "fashion-mnist",
        "--limit",
        "2",
        "--batch",
        "64",
        "--out",
        "run",
    ]
    certify = [
        "--import",
        "mine/own_plan.py",
        "certify",
        *OPTIONS["plan"],
        *small,
        "--devices",
        "cpu",
    ]
    assert "2 inputs" in process(tmp_path, "-P", "-m", "smoothcert", *certify)


def test_its_coverage_and_map_are_computed(folder, case):
    found = json.loads(smoothcert(folder, case, "coverage", *OPTIONS[case], "--json"))
    assert found["valid"]
    assert 0 < found["worst_failure"] <= 0.001
    rows = json.loads(
        smoothcert(folder, case, "map", *OPTIONS[case], "--at", "0.9,0.99", "--json")
    )["map"]
    assert [row["p"] for row in rows] == [0.9, 0.99]
    assert all(row["samples"] > 0 for row in rows)


def test_the_example_of_a_plan_keeps_to_its_ceiling():
    rows = json.loads(
        smoothcert(EXAMPLES, "plan", "map", *OPTIONS["plan"], "--samples", "1000", "--json")
    )["map"]
    assert max(row["samples"] for row in rows) <= 1_000 + 50  # and its pilot
    assert min(row["samples"] for row in rows) < 200


def test_a_reader_without_the_module_is_told_which_one_is_missing(folder, case):
    module, name, _ = CASES[case]
    _, told = command(folder, case, "table", "run", code=2)
    assert f"{name} is defined in module '{module}'" in told
    assert "import it with smoothcert --import FILE" in told
    assert "Traceback" not in told
