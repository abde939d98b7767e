import os
import random
import signal

import numpy as np
import pytest
from jobs import (
    INPUTS,
    At,
    Interrupted,
    alive,
    committed,
    eventually,
    interrupt,
    rows,
    session,
    started,
)
from PIL import Image
from tests.refusals import refused

from smoothcert import Fixed, Gaussian, certify
from smoothcert.errors import SmoothcertError
from smoothcert.executors import LocalExecutor
from smoothcert.executors.processes import ProcessExecutor
from smoothcert.runs.run import open_run


def two():
    return ProcessExecutor("cpu,cpu")


def test_two_processes_write_the_same_rows_as_one_and_end_afterwards(job, expected):
    progress = At()
    run = job.run(two(), progress=progress, trouble="wait", times=2)
    assert rows(run) == expected
    assert [worker.finished > 0 for worker in progress.status.workers] == [True, True]
    assert run.manifest.forwarded == progress.status.forwarded >= run.samples.sum()
    assert len(job.workers()) == 2
    assert not any(map(alive, job.workers()))


def test_a_worker_killed_at_a_random_moment_costs_nothing_but_time(job, expected):
    moment = random.randrange(1, INPUTS // 2)
    progress = At(moment, lambda: os.kill(random.choice(job.workers()), signal.SIGKILL))
    assert rows(job.run(two(), progress=progress, trouble="wait", times=2)) == expected
    assert (
        moment < 11 or "exit code -9" in progress.said
    )  # before that, the worker may not have started yet
    assert progress.status.opened == INPUTS
    assert progress.status.committed == progress.status.counted == INPUTS * 1100


def test_an_executor_can_run_a_second_job_with_other_settings(tmp_path):
    executor = ProcessExecutor("cpu")
    settings = {"noise": Gaussian(0.25), "plan": Fixed(100), "limit": 3, "executor": executor}
    first = certify(
        "fashion-cnn",
        "fashion-mnist",
        dtype="bfloat16",
        batch=64,
        out=tmp_path / "first",
        **settings,
    )
    again = certify(
        "fashion-cnn",
        "fashion-mnist",
        dtype="float32",
        batch=32,
        out=tmp_path / "again",
        **settings,
    )
    assert (first.manifest.batch, again.manifest.batch) == (64, 32)


def test_three_failures_of_an_input_stop_a_run_that_another_executor_completes(job, expected):
    with refused("unreadable-input", id=10) as raised:
        job.run(ProcessExecutor("cpu"), trouble="raise", times=3)
    failure = "input 10 failed 3 times, the last time with: reading input 10 of tampered fails"
    assert str(raised.value).startswith(failure)
    before = rows(open_run(job.folder / "run"))
    assert 0 < len(before) < INPUTS
    assert all(row in expected for row in before)
    assert not any(map(alive, job.workers()))
    assert rows(job.run(LocalExecutor(), trouble="raise", times=3)) == expected


def test_the_error_names_an_input_that_kills_its_readers(job):
    ended = "its process ended with exit code -9"
    with refused("input-failed", SmoothcertError, id=10, tries=3, error=ended):
        job.run(ProcessExecutor("cpu"), trouble="kill", times=3)


def test_a_run_begun_in_this_process_is_completed_by_two_past_an_input_that_cannot_be_read_once(
    job, expected
):
    with pytest.raises(Interrupted):
        job.run(LocalExecutor(), progress=At(5, interrupt))
    progress = At()
    assert rows(job.run(two(), progress=progress, trouble="raise")) == expected
    assert "reading input 10 of tampered fails (RuntimeError): the disk is on fire" in progress.said


def test_ctrl_c_on_the_command_line_leaves_no_process_behind(tmp_path):
    command = (
        "certify --model fashion-cnn --weights none --data fashion-mnist --sigma 0.25 "
        "--batch 64 --devices cpu,cpu"
    )
    with started(command, out=tmp_path / "run") as process:
        assert eventually(lambda: committed(tmp_path / "run"), seconds=60)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert "interrupted" in process.communicate(timeout=30)[1]
        assert process.returncode == 130
        assert eventually(lambda: not session(process.pid))


@pytest.mark.parametrize(
    ("devices", "code"),
    [
        ("cpu,cuda:0", "devices-of-two-kinds"),
        ("cpu,warp", "devices-of-two-kinds"),
        ("all", "no-cuda-device"),
        ("0,1", "devices-of-two-kinds"),
    ],
)
def test_devices_that_cannot_share_a_run_are_refused(devices, code, monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with refused(code):
        ProcessExecutor(devices)


def test_a_model_that_cannot_be_pickled_is_refused(job, tmp_path):
    with refused("not-picklable"):
        certify(
            lambda x: x[:, :2],
            [([0.5, 0.5], 0)],
            noise=Gaussian(0.5),
            batch=100,
            out=tmp_path / "run",
            executor=two(),
        )


def test_inputs_before_an_unreadable_one_are_certified_and_it_can_be_left_out(tmp_path):
    images, run = tmp_path / "images", tmp_path / "run"
    images.mkdir()
    for id in range(12):
        Image.fromarray(np.full((28, 28), 20 * id, np.uint8)).save(images / f"{id:02}.png")
    (images / "08.png").write_bytes(b"nothing")
    settings = {"noise": Gaussian(0.25), "plan": Fixed(200), "batch": 100, "out": run}
    message = r"input 8 failed 3 times, .*08\.png cannot be read .* leave input 8 out with ids="
    with pytest.raises(SmoothcertError, match=message):
        certify("fashion-cnn", images, executor=ProcessExecutor("cpu"), **settings)
    assert set(range(8)) <= set(open_run(run).id.tolist())
    assert certify("fashion-cnn", images, ids="0-7,9-11", **settings).complete
