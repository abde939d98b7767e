import json
import multiprocessing
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from tests.refusals import refused

from smoothcert import Fixed, certify, cli, open_run
from smoothcert.noises import Gaussian
from smoothcert.runs.journal import Journal
from smoothcert.runs.progress import Progress

FACTORY = """
import torch

def above_half():
    def model(x):
        return torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1)
    model.classes = 2
    return model

def random_by_design():
    def model(x):
        return torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1) + torch.rand(len(x), 2)
    model.classes = 2
    return model

def logits():
    return lambda x: torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1)

def dropout():
    network = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(3, 2))
    torch.nn.init.eye_(network[1].weight)
    return network

def small_batches_only():
    def model(x):
        if len(x) > 8:
            raise KeyError(f"no plan for {len(x)} rows")
        return torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1)
    return model

class Patience(torch.nn.Module):
    left = 60

    def forward(self, x):
        Patience.left -= 1
        if Patience.left == 0:
            raise ValueError("the licence server is gone")
        return torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1)
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A folder with a model and data, and the command that certifies them there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.py").write_text(FACTORY)
    x = np.random.default_rng(0).random((25, 3), np.float32)
    np.savez("data.npz", x=x, y=(x[:, 0] > 0.5).astype(int))
    yield "certify --model toy:above_half --data data.npz --sigma .25 --samples 1000 --device cpu --batch 500 --out run"
    sys.modules.pop("toy", None)


def test_certify_audit_table_and_export_follow_one_another(smoothcert, job):
    first = smoothcert(job)
    assert first.code == 0
    assert first.out.startswith("run: 25 inputs, ")
    assert first.out.splitlines()[1].startswith("certified accuracy: ")
    assert "inputs" not in first.err  # results are on stdout, progress is on stderr
    again = smoothcert(job)
    assert again.err == "run is complete already\n"
    assert again.out.splitlines()[:2] == first.out.splitlines()[:2]
    audited = smoothcert("audit run --model toy:above_half")
    assert (audited.code, audited.out) == (
        0,
        "run: 25 certificates checked, 5 drawn again: all radii follow from their votes; of these 25 "
        "inputs, at most 1 has a wrong certificate, with probability 0.9997.\n"
        "The plan keeps its alpha of 0.001.\n",
    )
    [row] = json.loads(smoothcert("table run --json").out)["runs"]
    run = open_run("run")
    assert (row["inputs"], row["average_samples"], row["acr"]) == (25, run.average_samples, run.acr)
    exported = smoothcert("export run --format cohen").out.splitlines()
    assert exported[0].split() == ["idx", "label", "predict", "radius", "correct", "time"]
    assert all(
        float(line.split()[3]) <= radius
        for line, radius in zip(exported[1:], run.radius, strict=True)
    )


def test_a_model_that_is_random_by_design_is_certified_if_one_says_so(smoothcert, job):
    job = job.replace("above_half", "random_by_design") + " --limit 2 --samples 200 --batch 100"
    assert smoothcert(job).code == 2
    assert smoothcert(f"{job} --stochastic").code == 0
    assert (
        "2 drawn again: all radii follow"
        in smoothcert("audit run --model toy:random_by_design").out
    )


def test_dropout_at_test_time_is_certified_and_a_run_knows_it(smoothcert, job):
    job = (
        job.replace("above_half", "dropout") + " --limit 3 --method fixed --samples 200 --batch 100"
    )
    assert smoothcert(job).code == 0
    told = smoothcert(f"{job} --stochastic")
    assert (
        "run holds another run: it differs in stochastic (there False, now True); choose another"
        in told.err
    )
    assert smoothcert(f"{job} --stochastic --out random").code == 0
    pairs = zip(open_run("run").certificates(), open_run("random").certificates(), strict=True)
    assert all(still.count != drawn.count for still, drawn in pairs)
    assert smoothcert(f"{job} --stochastic --out random").err.startswith(
        "random is complete already"
    )
    assert "3 drawn again: all radii follow" in smoothcert("audit random --model toy:dropout").out


@pytest.mark.parametrize("batch", ["auto", "500"])
def test_a_model_that_fails_after_the_first_check_is_one_sentence(smoothcert, job, batch):
    told = smoothcert(f"{job} --batch {batch}".replace("above_half", "small_batches_only"))
    rows = 64 if batch == "auto" else batch
    assert told.code == 2
    failure = rf"smoothcert: the model fails with KeyError: 'no plan for {rows} rows' \(.*toy.py, line \d+\)"
    assert re.fullmatch(failure, told.err.splitlines()[-1])


def test_a_model_that_fails_in_the_middle_of_a_run_is_one_sentence_and_the_run_continues(
    smoothcert, job
):
    job = job.replace("above_half", "Patience").replace("--batch 500", "--batch 250 --method fixed")
    told = smoothcert(job)
    assert told.code == 2
    assert re.fullmatch(
        r"smoothcert: the model fails with ValueError: the licence server is gone \(.*toy.py, line \d+\); "
        "all finished inputs are saved, and the same command continues",
        told.err.splitlines()[-1],
    )
    assert 0 < len(open_run("run")) < 25
    assert smoothcert(job).code == 0
    assert "5 drawn again: all radii follow" in smoothcert("audit run --model toy:Patience").out


def test_the_number_of_classes_is_that_of_the_logits(smoothcert, job):
    assert smoothcert(f"{job} --limit 2".replace("above_half", "logits")).code == 0
    assert open_run("run").manifest.classes == 2
    assert "2 drawn again: all radii follow" in smoothcert("audit run --model toy:logits").out


@pytest.mark.filterwarnings("default:the pilot is counted again")
def test_options_reach_the_plan(smoothcert, job):
    options = "--method fixed --pilot 50 --pilot-use reuse --alpha 0.01 --seed 3 --ids 2,4-6 --limit 3 --dtype bfloat16"
    told = smoothcert(f"{job} {options}")
    assert told.code == 0
    assert "the pilot is counted again, as published" in told.err
    run = open_run("run")
    assert run.id.tolist() == [2, 4, 5]
    assert run.samples.tolist() == [1000] * 3
    assert str(run.plan) == "fixed 1,000, pilot reused"
    assert run.plan == Fixed(1000, pilot=50, pilot_use="reuse", alpha=0.01)
    assert (run.manifest.seed, run.manifest.dtype) == (3, "bfloat16")


def test_audit_ends_with_1_and_the_ids_of_what_does_not_hold(smoothcert, job):
    smoothcert(job)
    with Journal(open_run("run").path, write=True) as journal:
        journal._db.execute(
            "UPDATE certificates SET radius = radius + 0.01 WHERE id IN (3, 8) AND radius > 0"
        )
        changed = [
            id
            for (id,) in journal._db.execute(
                "SELECT id FROM certificates WHERE id IN (3, 8) AND radius > 0"
            )
        ]
    told = smoothcert("audit run --redraw 0")
    assert told.code == 1
    *inputs, verdict, plan = told.out.splitlines()
    assert [line.split(":")[0] for line in inputs] == [f"input {id}" for id in changed]
    assert verdict.endswith(f"{len(changed)} do NOT hold.")
    assert plan == "The plan keeps its alpha of 0.001."
    plain = smoothcert("audit run --model toy:above_half --json")
    assert plain.code == 1
    found = json.loads(plain.out)
    assert (found["holds"], found["checked"]) == (False, 25)
    assert [finding["id"] for finding in found["findings"]] == changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("--data nan.npz", "input 1 of nan has NaN or infinite values: leave it out with --ids"),
        ("--size 784", "No such option: --size"),
        ("--batch 999999999999", "does not fit into the memory of cpu"),
        ("--model broken_toy:network", "broken_toy.py, line 2)"),
        ("--out=", "'--out': the value is empty (is a shell variable not set?): name a folder"),
    ],
)
def test_bad_input_is_one_line_and_code_2(smoothcert, job, change, message):
    Path("broken_toy.py").write_text("import torch\nnetwork = torch.nothing\n")
    np.savez("nan.npz", x=np.array([[0, 0, 0], [0, np.nan, 0]], np.float32))
    answer = smoothcert(f"{job} {change}")
    assert (answer.code, answer.out) == (2, "")
    last = answer.err.strip().splitlines()[-1]
    assert last.startswith("smoothcert: ")
    assert message in last
    assert "Traceback" not in answer.err


def test_an_input_that_is_not_finite_can_be_left_out_and_this_is_told(smoothcert, job):
    np.savez("nan.npz", x=np.array([[0, 0, 0], [0, np.nan, 0], [1, 1, 1]], np.float32), y=[0, 0, 1])
    assert smoothcert(f"{job} --data nan.npz").code == 2
    assert open_run("run").id.tolist() == [0]
    answer = smoothcert(f"{job} --data nan.npz --ids 0,2")
    assert answer.code == 0
    assert "run: 2 inputs, 0 abstained" in answer.out
    assert ", 1 input unreadable and left out" in answer.out
    assert "unreadable, left out" in smoothcert("table run --format markdown").out
    assert smoothcert("report run --out page.html").code == 0
    assert "<strong>1 input unreadable and left out.</strong>" in Path("page.html").read_text()
    assert smoothcert("compare run run").code == 0


def test_data_in_memory_is_not_looked_for_on_disk(smoothcert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = np.random.default_rng(0).random((4, 1, 28, 28), np.float32), [0] * 4
    settings = {"sigma": 0.25, "plan": Fixed(100), "device": "cpu", "progress": Progress()}
    for name, data in (("data", (x, y)), ("labels", (list(x), y))):
        certify("fashion-cnn", data, out=name, **settings)
    Path("arrays").mkdir()  # the name of the data
    Image.new("L", (28, 28)).save("arrays/0.png")
    instead = (
        "; give the parts of the run with --model, --weights and --data, or check only the votes: "
        "--redraw 0 of audit, audit = 0 in a policy\n"
    )
    told = "smoothcert: cannot draw again: the run was made with"
    assert smoothcert("audit data") == (2, "", f"{told} data in memory{instead}")
    pair = "labels in memory, so its data is a pair, in Python data=(DATA, LABELS)"
    assert smoothcert("audit labels") == (2, "", f"{told} {pair}{instead}")
    np.savez("saved.npz", x=x, y=y)
    assert smoothcert("audit data --data saved.npz").code == 0
    assert "labels not compared" in smoothcert("audit labels --redraw 0").out


@pytest.mark.filterwarnings("always")
def test_inputs_outside_of_0_to_1_are_a_warning_about_units(smoothcert, job):
    np.savez("large.npz", x=np.full((2, 3), 3, np.float32))
    answer = smoothcert(f"{job} --data large.npz")
    assert answer.code == 0
    assert "smoothcert: warning: large: values lie in [3, 3], not in [0, 1]" in answer.err


def committed(folder):
    """Ids in a journal. Another process may be writing it, or may have stopped at any moment."""
    try:
        with Journal(folder) as journal:
            return journal.ids()
    except Exception:  # there is no journal yet
        return set()


def wait_for(condition, process, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.002)


REAL = "certify --model fashion-cnn --data fashion-mnist --sigma 0.5 --device cpu --batch 256"


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_one_process_at_a_time_readers_any_time_and_a_stop_says_how_far_it_came(
    tmp_path, stop, code
):
    command = [
        sys.executable,
        "-m",
        "smoothcert",
        *REAL.split(),
        "--samples",
        "20000",
        "--out",
        tmp_path,
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(lambda: len(committed(tmp_path)) > 1, process)
            with refused("folder-in-use"):
                certify("fashion-cnn", "fashion-mnist", noise=Gaussian(0.5), out=tmp_path)
            assert not open_run(tmp_path).complete
            process.send_signal(stop)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()  # also if an assertion failed
    assert process.returncode == code
    assert errors.splitlines()[-2:] == [
        f"{len(open_run(tmp_path))} of 500 inputs are certified and saved in {tmp_path}",
        "smoothcert: interrupted; all saved results are safe, and the same command continues from there",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "inputs", "kills"),
    [
        ("--samples 1000", 160, 20),
        ("--transform rotation --radii 2,5 --known-labels --samples 1000", 40, 5),
    ],
)
def test_a_run_killed_many_times_ends_with_the_certificates_of_one_that_was_not(
    tmp_path, monkeypatch, smoothcert, plan, inputs, kills
):
    command = f"{REAL} {plan} --limit {inputs} --out {tmp_path}"
    assert smoothcert(f"{command}/whole").code == 0
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["smoothcert.tasks.certify"])
    monkeypatch.setattr(sys, "argv", ["smoothcert", *command.split()])
    sys.argv[-1] += "/killed"
    moments = random.Random(0)
    done = set()
    for _ in range(kills):
        process = processes.Process(target=cli.main)
        process.start()
        process.poll = lambda process=process: process.exitcode
        more = len(done) + moments.randint(1, 3)
        wait_for(lambda more=more: len(committed(tmp_path / "killed")) >= more, process)
        time.sleep(moments.uniform(0, 0.01))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        before, done = done, committed(tmp_path / "killed")
        assert before < done
    assert len(done) < inputs
    answer = smoothcert(f"{command}/killed")
    assert answer.err.startswith(f"resuming: {len(done)} of {inputs} inputs are done")
    whole, killed = (
        [vars(c) | {"seconds": 0} for c in open_run(tmp_path / name).certificates()]
        for name in ("whole", "killed")
    )
    assert killed == whole


def test_json_tells_what_the_run_found_and_quiet_tells_nothing(smoothcert, job):
    told = smoothcert(f"{job} --json --radii 0,0.1")
    found = json.loads(told.out)
    run = open_run("run")
    assert (found["out"], found["complete"], found["inputs"]) == ("run", True, 25)
    assert (found["acr"], found["average_samples"]) == (run.acr, run.average_samples)
    assert found["certified_accuracy"] == {
        "0": run.certified_accuracy([0])[0],
        "0.1": run.certified_accuracy([0.1])[0],
    }
    assert "inputs" not in told.err
    assert smoothcert(f"{job} --quiet --radii 0,0.1") == (0, "", "")
    quiet = smoothcert(f"{job} -q --json --radii 0,0.1")
    assert json.loads(quiet.out)["inputs"] == 25
    assert quiet.err == ""


def test_shards_are_merged(smoothcert, job):
    for part in (1, 2):
        assert smoothcert(f"{job}-{part} --shard {part}/2").code == 0
    assert smoothcert("merge run-1 --out merged") == (
        2,
        "",
        "smoothcert: shard 2/2 is missing: add its run, or merge the existing certificates with --partial\n",
    )
    assert smoothcert("merge run-1 run-2 --out merged") == (0, "merged: 25 inputs of 2 runs\n", "")
    assert smoothcert("audit merged --model toy:above_half").code == 0
    assert json.loads(smoothcert("merge run-1 --out part --partial --json").out) == {
        "out": "part",
        "inputs": 13,
        "asked": 13,
        "complete": True,
    }


@pytest.mark.parametrize("tracker", ["comet:x", "tensorboard"])
def test_an_unknown_tracker_is_refused_before_the_run(smoothcert, job, tracker):
    answer = smoothcert(f"{job} --track {tracker}")
    assert answer.code == 2
    assert not Path("run").exists()
    assert "give tensorboard:DIR, wandb:PROJECT or mlflow:EXPERIMENT" in answer.err


@pytest.mark.filterwarnings("default:WandB")
def test_a_tracker_that_fails_is_another_exit_code_and_the_run_is_complete(
    smoothcert, tmp_path, monkeypatch
):
    class Unplugged:
        def log(self, figures):
            raise ConnectionError("no network")

    wandb = SimpleNamespace(run=None, init=lambda **settings: Unplugged())
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    answer = smoothcert(
        "certify --model fashion-cnn --data fashion-mnist --sigma 0.25 --samples 500 --limit 2 "
        f"--device cpu --batch 250 --track wandb:robust --out {tmp_path / 'run'}"
    )
    assert answer.code == 4
    assert "WandB gets no more figures" in answer.err
    assert open_run(tmp_path / "run").complete
