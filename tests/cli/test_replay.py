import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smoothcert.noises import Ablation, Gaussian, Splitting
from smoothcert.plans import Certificate, Exact, Fixed, InputSpecific, Look
from smoothcert.runs.formats import read_results, write_results
from smoothcert.runs.journal import Journal
from smoothcert.runs.manifest import Manifest

SMALL = Path(__file__).parents[1] / "data" / "small-log.tsv"
LOGS = Path(__file__).parents[3] / "shared" / "logs"
PUBLISHED = LOGS / "imagenet-consistency-0.50.tsv"
needs_logs = pytest.mark.skipif(not LOGS.is_dir(), reason="the published logs are not here")


def manifest(plan, noise):
    """The manifest of a run of one input."""
    settings = {"seed": 0, "device": "cpu", "dtype": "float32"}
    return Manifest("m", 10, "d", "0", (7,), noise, plan, **settings).plain()


@needs_logs
@pytest.mark.parametrize(
    "plan",
    [
        "--protocol iss",
        "--protocol iss --samples 100000 --decline 0.05",
        "--samples 100000 --pilot 1000 --decline 0.05 --kind absolute --pilot-use reuse",
    ],
)
def test_replay_reproduces_the_paper(smoothcert, plan):
    answer = smoothcert(f"replay {PUBLISHED} --sigma 0.5 {plan} --json")
    found = json.loads(answer.out)
    assert found["average_samples"] == pytest.approx(34360, rel=0.03)
    assert found["acr"] == pytest.approx(0.799, abs=0.005)
    assert found["fixed"]["acr"] == pytest.approx(0.777, abs=0.005)
    assert found["fixed"]["samples"] == found["average_samples"]
    assert {"mad", "abstained", "certified_accuracy", "ceiling"} <= set(found)


@needs_logs
@pytest.mark.parametrize(
    ("log", "sigma"),
    [
        ("imagenet-consistency-0.50.tsv", 0.5),
        ("imagenet-consistency-1.00.tsv", 1.0),
        ("cifar10-consistency-0.50.tsv", 0.5),
    ],
)
def test_the_protocol_of_cohen_gives_back_the_figures_of_a_log(smoothcert, log, sigma):
    radii = [0, 0.25, 0.5, 0.75, 1, 1.25, 1.5]
    published = read_results(LOGS / log)
    listed = ",".join(map(str, radii))
    answer = smoothcert(
        f"replay {LOGS / log} --sigma {sigma} --protocol cohen --radii {listed} --json"
    )
    found = json.loads(answer.out)
    assert found["average_samples"] == 100_100
    assert found["acr"] == pytest.approx(published.acr, abs=0.002)
    shares = list(found["certified_accuracy"].values())
    assert shares == pytest.approx(published.certified_accuracy(radii), abs=0.003)


def test_the_table_of_a_replay_fits_a_terminal(smoothcert):
    table = smoothcert(
        f"replay {SMALL} --sigma 0.5 --samples 10000 --log-samples 10000 --radii 0,0.5"
    ).out
    assert max(map(len, table.splitlines())) <= 80
    assert "small-log.tsv: 60 inputs, 20 repetitions" in table
    assert "taken to be of 10,000 samples per input" in " ".join(table.split())
    assert [
        line.split("  ")[1] for line in table.splitlines() if line.startswith("  ") and line.strip()
    ][1:] == [
        "average samples",
        "saved",
        "ACR",
        "MAD",
        "abstained",
        "certified at 0",
        "certified at 0.5",
    ]


def test_an_export_of_a_published_log_is_replayed_like_the_log(smoothcert, tmp_path):
    path = tmp_path / "small.csv"
    write_results(read_results(SMALL), path, "csv")
    options = "--sigma 0.5 --samples 10000 --log-samples 10000 --json"
    assert smoothcert(f"replay {path} {options}") == smoothcert(f"replay {SMALL} {options}")


def test_a_log_in_another_order_is_the_same_log(smoothcert, tmp_path):
    header, *rows = SMALL.read_text().splitlines()
    (tmp_path / "turned.tsv").write_text("\n".join([header, *reversed(rows)]))
    options = "--sigma 0.5 --samples 10000 --log-samples 10000 --json"
    assert smoothcert(f"replay {tmp_path / 'turned.tsv'} {options}") == smoothcert(
        f"replay {SMALL} {options}"
    )


def test_a_run_that_counted_no_votes_is_replayed_and_an_empty_one_is_named(smoothcert, tmp_path):
    plan, noise = InputSpecific(1_000), Gaussian(0.5)
    with Journal(tmp_path, write=True) as journal:
        journal.write_manifest(manifest(plan, noise))
        empty = smoothcert(f"replay {tmp_path} --sigma 0.5")
        journal.add(
            Certificate.from_votes([Look(100, {3: 10})], plan=plan, noise=noise, id=7, label=3), {}
        )
    assert (empty.code, "holds no certificates yet" in empty.err) == (2, True)
    assert json.loads(smoothcert(f"replay {tmp_path} --sigma 0.5 --json").out)["abstained"] == 1


def test_without_labels_nothing_is_said_about_accuracy(smoothcert, iss_run, tmp_path):
    write_results(
        replace(iss_run, label=np.full_like(iss_run.label, -1)), tmp_path / "iss.csv", "csv"
    )
    options = f"replay {tmp_path / 'iss.csv'} --sigma 0.5 --samples 10000 --radii 0"
    found = json.loads(smoothcert(f"{options} --json").out)
    assert (found["acr"], found["certified_accuracy"]) == (None, {"0": None})
    assert found["fixed"]["mad"] > 0
    assert smoothcert(options).out.count(" -") >= 6


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_our_own_exports_are_replayed_too(smoothcert, iss_run, tmp_path, format):
    path = tmp_path / f"iss.{format}"
    write_results(iss_run, path, format)
    found = json.loads(smoothcert(f"replay {path} --sigma 0.5 --samples 10000 --json").out)
    assert found["inputs"] == len(iss_run)
    assert found["average_samples"] == pytest.approx(iss_run.average_samples, rel=0.05)


def test_what_few_samples_cannot_tell_is_said(smoothcert, iss_run, tmp_path):
    write_results(iss_run, tmp_path / "iss.csv", "csv")
    options = f"replay {tmp_path / 'iss.csv'} --sigma 0.5"
    assert "We take p as 1 there" in " ".join(
        smoothcert(f"{options} --samples 1000000").out.split()
    )
    assert "We take p as 1 there" not in smoothcert(f"replay {SMALL} --sigma 0.5").out
    refused = smoothcert(f"{options} --log-samples 1000")
    assert (refused.code, "leave out --log-samples" in refused.err) == (2, True)


def test_one_unanimous_input_is_told_in_the_singular(smoothcert, tmp_path):
    plan, noise = Fixed(100, pilot=100), Gaussian(0.5)
    certificate = Certificate.from_votes(
        [Look(100, {3: 100}), Look(100, {3: 100})], plan=plan, noise=noise, id=7, label=3
    )
    with Journal(tmp_path, write=True) as journal:
        journal.write_manifest(manifest(plan, noise))
        journal.add(certificate, {})
    told = " ".join(smoothcert(f"replay {tmp_path} --sigma 0.5 --samples 1000").out.split())
    assert "1 input was unanimous in at most 100 samples. We take p as 1 there" in told


def test_the_run_knows_the_size_of_its_inputs(smoothcert, tmp_path):
    plan, noise = Fixed(100), Ablation(45, size=784)
    looks = [Look(plan.pilot, {3: plan.pilot}), Look(100, {3: 90})]
    with Journal(tmp_path, write=True) as journal:
        journal.write_manifest(manifest(plan, noise))
        journal.add(Certificate.from_votes(looks, plan=plan, noise=noise, id=7, label=3), {})
    options = f"replay {tmp_path} --samples 1000 --method fixed --json"
    told = smoothcert(f"{options} --noise ablation:45")
    assert told == smoothcert(options)
    assert told.code == 0


@pytest.mark.parametrize("options", ["--method exact", "--samples 1000"])
def test_what_is_not_random_is_not_simulated(smoothcert, tmp_path, options):
    noise = Splitting(1.0, levels=255)
    plan = Exact().for_noise(noise)
    with Journal(tmp_path, write=True) as journal:
        journal.write_manifest(manifest(plan, noise))
        journal.add(
            Certificate.from_votes([Look(510, {3: 500})], plan=plan, noise=noise, id=7, label=3), {}
        )
    refused = smoothcert(f"replay {tmp_path} --noise splitting:1,255 {options}")
    assert refused.code == 2
    assert refused.err.startswith(
        "smoothcert: Splitting(scale=1.0, levels=255) is not random: its certificates are exact"
    )
