import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.refusals import refused

import smoothcert as sc
from smoothcert.runs.journal import Journal

INPUTS = np.random.default_rng(0).random((20, 4)).astype(np.float32)
DATA = [(x, int(x[0] > 0.5)) for x in INPUTS]


def above_half(x):
    return torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1)


def certify(out, data=DATA, **settings):
    defaults = {
        "noise": sc.Gaussian(0.25),
        "plan": sc.InputSpecific(1000),
        "device": "cpu",
        "batch": 200,
    }
    return sc.certify(above_half, data, out=out, progress=sc.Progress(), **(defaults | settings))


def rows(run):
    return {name: str(column.tolist()) for name, column in run.columns.items() if name != "seconds"}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    return [certify(folder / f"shard-{part}", shard=f"{part}/3") for part in (1, 2, 3)]


def test_the_shards_of_a_run_merge_to_that_run(shards, tmp_path):
    assert [run.id.tolist() for run in shards] == [list(range(part, 20, 3)) for part in (0, 1, 2)]
    merged = sc.merge([str(run.path) for run in shards], out=tmp_path / "merged")
    whole = certify(tmp_path / "whole")
    assert rows(merged) == rows(whole)
    assert merged.complete
    assert merged.manifest.finished
    assert merged.manifest.shard is None
    assert (
        merged.manifest.values
        == whole.manifest.values
        == (min(map(np.min, INPUTS)), max(map(np.max, INPUTS)))
    )
    assert merged.manifest.forwarded == sum(run.manifest.forwarded for run in shards)
    assert [c.looks for c in merged] == [c.looks for c in whole]
    assert (
        certify(tmp_path / "merged").samples.tolist() == whole.samples.tolist()
    )  # it is complete already


def test_copies_in_every_part_are_copies_in_the_merged_run(shards, tmp_path):
    parts = []
    for run, copies in zip(shards, [(), (1, 4), (5,)], strict=True):
        folder = tmp_path / run.name
        shutil.copytree(run.path, folder)
        with Journal(folder, write=True) as journal:
            journal.write_manifest({"copies": copies})
        parts.append(folder)
    assert sc.merge(parts, out=tmp_path / "merged").manifest.copies == (1, 4, 5)


def test_a_missing_shard_is_named_and_can_be_certified_later(shards, tmp_path):
    with refused("missing-shard"):
        sc.merge([shards[0], shards[2]], out=tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
    partial = sc.merge([shards[0], shards[2]], out=tmp_path / "merged", partial=True)
    assert len(partial) == 13
    completed = certify(tmp_path / "merged")
    assert completed.id.tolist() == list(range(20))
    assert completed.complete


def test_an_input_without_a_certificate_is_named(shards, tmp_path):
    with Journal(tmp_path, write=True) as journal:
        certificates = list(shards[1])
        journal.write_manifest(replace(shards[1].manifest, finished=None).plain())
        for certificate in certificates[:-1]:
            journal.add(certificate, {})
    with refused("not-finished", count=1, id=19):
        sc.merge([shards[0], tmp_path, shards[2]], out=tmp_path / "merged")
    partial = sc.merge([shards[0], tmp_path, shards[2]], out=tmp_path / "merged", partial=True)
    assert not partial.complete
    assert partial.manifest.finished is None


def test_an_input_in_two_runs_is_named(shards, tmp_path):
    with refused("repeated-input", count=7, id=0):
        sc.merge([shards[0], shards[1], shards[0]], out=tmp_path / "merged")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"plan": sc.InputSpecific(1000, decline=0.1)}, r"plan\.decline \(there 0\.05, now 0\.1\)"),
        ({"seed": 1}, r"seed \(there 0, now 1\)"),
        ({"noise": sc.Gaussian(0.5)}, r"noise\.sigma"),
        ({"batch": 100}, r"batch \(there 200, now 100\)"),
    ],
)
def test_what_does_not_belong_together_is_refused(shards, tmp_path, change, named):
    other = certify(tmp_path / "other", shard="2/3", **change)
    with pytest.raises(sc.InvalidInput, match=f"other does not belong to .*shard-1: .*{named}"):
        sc.merge([shards[0], other, shards[2]], out=tmp_path / "merged")


def test_shards_of_different_divisions_and_a_folder_in_use_are_refused(shards, tmp_path):
    half = certify(tmp_path / "half", ids="19", shard="1/1")
    with refused("other-division"):
        sc.merge([shards[0], half], out=tmp_path / "merged")
    with refused("folder-has-run"):
        sc.merge(shards, out=half.path)
    with refused("no-runs"):
        sc.merge([], out=tmp_path / "merged")


def test_a_shard_needs_a_batch_that_all_shards_share(tmp_path):
    with refused("shard-without-batch"):
        certify(tmp_path, shard="1/3", batch="auto")


def test_a_run_is_iterated_and_indexed_by_id(shards):
    run = shards[1]
    assert [c.id for c in run] == run.id.tolist()
    assert run[4].radius == run.radius[1]
    assert run[np.int64(4)] == run[4]
    assert 4 in run
    assert 5 not in run
    with pytest.raises(KeyError, match="no certificate of input 5"):
        run[5]


def test_a_shard_with_an_unreadable_input_goes_on_without_it_and_is_merged(tmp_path):
    class Damaged(list):
        fingerprint = "damaged"

        def __getitem__(self, index):
            if index == 4:
                raise OSError("disk is broken")
            return super().__getitem__(index)

    data = Damaged(DATA)
    even = certify(tmp_path / "even", data=data, shard="2/2")
    with refused("unreadable-input", id=4):
        certify(tmp_path / "odd", data=data, shard="1/2")
    with refused("not-finished"):
        sc.merge([tmp_path / "odd", even], out=tmp_path / "early")
    odd = certify(tmp_path / "odd", data=data, ids=[i for i in range(0, 20, 2) if i != 4])
    assert (odd.manifest.shard, odd.complete, odd.left_out) == ("1/2", True, 1)
    merged = sc.merge([odd, even], out=tmp_path / "merged")
    assert (len(merged), merged.left_out, merged.complete) == (19, 1, True)
