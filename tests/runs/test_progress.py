import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace

import pytest

import smoothcert as sc
from smoothcert import Certificate, Gaussian, InputSpecific
from smoothcert.executors import Status
from smoothcert.plans import Look
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.progress import Display, Pace
from smoothcert.runs.run import Run
from smoothcert.runs.words import summary
from smoothcert.statistics.metrics import round_down

PLAN, NOISE = InputSpecific(10_000), Gaussian(0.5)
CERTIFICATE = Certificate.from_votes(
    [Look(100, {1: 60}), Look(900, {1: 600})], plan=PLAN, noise=NOISE, label=1
)


@pytest.fixture
def now(monkeypatch):
    """A clock that only changes when a test calls `now.append(seconds)`."""
    times = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: times[-1])
    return times


MANIFEST = Manifest(
    model="m",
    classes=2,
    data="d",
    data_hash="0",
    ids=(0, 1),
    noise=NOISE,
    plan=PLAN,
    seed=0,
    device="cpu",
    dtype="float32",
    compile="none",
    forwarded=2000,
)


def run_of(certificates):
    columns = Run.from_certificates("run", certificates).columns
    return Run(name="run", **columns, noise=NOISE, plan=PLAN, manifest=MANIFEST)


def test_time_left_is_what_plans_want_over_the_rate_since_sampling_began(now):
    pace = Pace(run_of([]), total=10)
    now.append(150.0)  # the time for compilation
    pace.start()
    now.append(160.0)
    pace.add(CERTIFICATE, Status(opened=4, committed=4000, forwarded=2100, counted=2000))
    assert pace.rate == 200
    assert pace.eta == pytest.approx((10 * 1000 - 2000) / 200)


def test_a_resumed_run_counts_what_was_there_before(now):
    pace = Pace(run_of([CERTIFICATE]), total=3)
    pace.start()
    now.append(110.0)
    pace.add(CERTIFICATE, Status(opened=2, committed=2000, forwarded=1000, counted=1000))
    assert (pace.done, pace.spent) == (2, 2000)
    assert pace.eta == pytest.approx(1000 / 100)  # nothing is left but what is open
    assert pace.acr == CERTIFICATE.radius
    assert pace.saved == 1 - 1000 / PLAN.most_samples


def test_plain_progress_is_a_line_now_and_then(now, capsys):
    progress = Display()
    progress.begin(run_of([]), total=4)
    progress.start()
    for seconds in (110.0, 131.0, 140.0):
        now.append(seconds)
        progress.update(CERTIFICATE, Status(opened=3, committed=3000, forwarded=2000, counted=2000))
    progress.end(run_of([CERTIFICATE]))
    lines = capsys.readouterr().err.splitlines()
    assert [line.startswith("2/4 inputs, 2,000 samples, ") for line in lines] == [True] + [
        False
    ] * (len(lines) - 1)
    assert lines[0].endswith(", 0:00:31 left")


def test_the_end_tells_certified_accuracy_samples_and_time(capsys):
    progress = Display()
    progress.begin(run_of([]), total=2)
    progress.end(run_of([CERTIFICATE, replace(CERTIFICATE, id=1, prediction=0, seconds=2)]))
    assert capsys.readouterr().err.splitlines()[:-1] == [
        f".: 2 inputs, 1 abstained, ACR {round_down(CERTIFICATE.radius / 2)} (l2)",
        "certified accuracy: 0.0% at radius 0",
        "2,000 samples, 1,000 per input, in float32; all sampling took 2.0 s",
        "no certificate is wrong, with probability 0.998",
        "680 outputs were not finite or no class, and counted for none",
    ]


def test_without_labels_the_end_tells_the_radii(capsys):
    unlabelled = [
        replace(CERTIFICATE, id=i, label=None, prediction=1, radius=r)
        for i, r in enumerate((0.1, 0.2, 0.6))
    ]
    text = summary(run_of([*unlabelled, replace(CERTIFICATE, id=3, label=None)]), seconds=7.25)
    assert "certified radius (l2): smallest 0.100, median 0.200, mean 0.300" in text
    assert " s, this command 7.2 s" in text


def test_a_run_that_stops_early_says_how_far_it_came(capsys):
    progress = Display()
    progress.begin(run_of([]), total=3)
    progress.update(CERTIFICATE, Status())
    progress.close()
    assert capsys.readouterr().err == "1 of 3 inputs are certified and saved in .\n"


def test_the_acr_is_only_told_where_there_are_labels(now, capsys):
    without = replace(CERTIFICATE, id=1, label=None)
    for certificates, acr in (([without], None), ([without, CERTIFICATE], CERTIFICATE.radius / 2)):
        progress = Display()
        progress.begin(run_of([]), total=2)
        now.append(now[-1] + 30)
        for certificate in certificates:
            progress.update(
                certificate, Status(opened=2, committed=2000, forwarded=1000, counted=1000)
            )
        progress.end(run_of(certificates))
        told = capsys.readouterr().err
        assert set(re.findall(r"ACR [\d.]+", told)) == (
            set() if acr is None else {f"ACR {round_down(acr)}"}
        )
        assert ("1 without a label counted as 0" in told) == (acr is not None)


def test_certify_shows_progress_unless_it_is_told_not_to(tmp_path, capsys):
    settings = {
        "noise": sc.Gaussian(0.5),
        "plan": sc.Fixed(200),
        "classes": 2,
        "device": "cpu",
        "batch": 100,
    }
    data = [([0.2, 0.0], 0), ([0.9, 0.0], 1)]
    sc.certify(lambda x: (x[:, 0] > 0.5).long(), data, out=tmp_path / "shown", **settings)
    assert "2 inputs" in capsys.readouterr().err
    sc.certify(
        lambda x: (x[:, 0] > 0.5).long(),
        data,
        out=tmp_path / "silent",
        progress=sc.Progress(),
        **settings,
    )
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("bar", [False, True])
def test_messages_are_shown_as_they_are(bar, capsys):
    progress = Display(bar=bar)
    progress.begin(run_of([]), total=0)
    progress.say("model:x:[bold] is 1.5")
    progress.close()
    assert "model:x:[bold] is 1.5\n" in capsys.readouterr().err


@pytest.mark.parametrize("bar", [False, True])
@pytest.mark.parametrize("stream", ["full", "closed", "none"])
def test_a_run_goes_on_when_nobody_can_read_its_progress(bar, stream, tmp_path, monkeypatch):
    with open("/dev/full", "w") as full, open(os.devnull, "w") as closed:
        closed.close()
        monkeypatch.setattr(sys, "stderr", {"full": full, "closed": closed, "none": None}[stream])
        run = sc.certify(
            "fashion-cnn", "fashion-mnist", noise=sc.Gaussian(0.25), plan=sc.Fixed(100), limit=3, batch=100,
            device="cpu", out=tmp_path, progress=Display(bar=bar)
        )  # fmt: skip
        with suppress(OSError):
            full.close()
    assert run.complete


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-"])
def test_the_command_goes_on_when_nobody_can_read_its_progress(where, tmp_path):
    line = (
        f"{sys.executable} -m smoothcert certify --model fashion-cnn --data fashion-mnist --sigma 0.3 --samples 100 "
        f"--limit 2 --batch 100 --out {tmp_path / 'run'} {where}"
    )
    assert subprocess.run(line, shell=True).returncode == 0
    assert sc.open_run(tmp_path / "run").complete
