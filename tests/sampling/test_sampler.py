import random

import numpy as np
import pytest
import torch

from smoothcert.device.runtime import Runtime
from smoothcert.noises import Gaussian
from smoothcert.sampling.sampler import Batch, Sampler, VoteCounter
from smoothcert.sampling.streams import Segment

CPU = torch.device("cpu")
INPUTS = torch.rand((12, 3, 4), generator=torch.Generator().manual_seed(1))
REQUESTS = {id: [100, 37 * id, 3] if id % 3 else [100] for id in range(len(INPUTS))}
"""The requests of each input."""


def thirds(x):
    """Three classes by the sum of the values, exactly, whatever the batch is."""
    return torch.bucketize(
        x.flatten(1).double().sum(1), torch.tensor([5.5, 6.5], dtype=torch.double)
    )


def make(*, slots, batch, classify=thirds, classes=3, shape=(3, 4), seed=0):
    runtime = Runtime("cpu", "float32", "none", batch)
    counter = VoteCounter(
        classify,
        runtime,
        noise=Gaussian(0.25),
        shape=shape,
        classes=classes,
        slots=slots,
        seed=seed,
    )
    return Sampler(counter)


def sample(sampler, order):
    """Open inputs in this order and serve REQUESTS; returns the looks of each input."""
    waiting = list(order)
    looks = {id: [] for id in order}
    slots = {}
    while waiting or slots:
        while waiting and sampler.free:
            id = waiting.pop(0)
            slot = sampler.open(id, INPUTS[id])
            slots[slot] = id
            sampler.request(slot, REQUESTS[id][0])
        for slot, look in sampler.advance():
            id = slots[slot]
            looks[id].append(look)
            if len(looks[id]) < len(REQUESTS[id]):
                sampler.request(slot, REQUESTS[id][len(looks[id])])
            else:
                sampler.close(slot)
                del slots[slot]
    return looks


@pytest.fixture(scope="module")
def expected():
    """The looks of each input alone, in one large batch."""
    return {id: sample(make(slots=1, batch=1000), [id])[id] for id in range(len(INPUTS))}


@pytest.mark.parametrize(
    ("slots", "batch"), [(1, 7), (2, 64), (3, 100), (5, 101), (12, 256), (20, 4096)]
)
def test_votes_do_not_depend_on_window_batch_or_order(expected, slots, batch):
    order = list(range(len(INPUTS)))
    random.Random(slots).shuffle(order)
    assert sample(make(slots=slots, batch=batch), order) == expected


def test_votes_do_not_depend_on_the_default_number_format(expected):
    torch.set_default_dtype(torch.float64)
    try:
        sampler = make(slots=3, batch=64)
        assert sampler.counter.inputs.dtype == torch.float32
        assert sample(sampler, range(len(INPUTS))) == expected
    finally:
        torch.set_default_dtype(torch.float32)


def test_votes_do_depend_on_the_seed(expected):
    assert sample(make(slots=3, batch=64, seed=1), range(len(INPUTS))) != expected


def test_all_rows_are_counted_and_only_the_last_batch_is_padded(expected):
    sampler = make(slots=6, batch=64)
    looks = sample(sampler, range(len(INPUTS)))
    requested = sum(map(sum, REQUESTS.values()))
    assert (
        sampler.counted
        == requested
        == sum(look.samples for many in looks.values() for look in many)
    )
    assert all(look.missing == 0 for many in looks.values() for look in many)
    assert 0 <= sampler.forwarded - sampler.counted < 3 * 64


def test_memory_is_bounded_by_slots_not_by_inputs_or_samples():
    sampler = make(slots=3, batch=64)
    counter = sampler.counter
    before = {
        name: value.shape
        for name, value in vars(counter).items()
        if isinstance(value, torch.Tensor)
    }
    sample(sampler, range(len(INPUTS)))
    assert before == {
        name: value.shape
        for name, value in vars(counter).items()
        if isinstance(value, torch.Tensor)
    }
    assert (sampler.free, sampler._packer.rows) == (3, 0)


def test_a_thousand_classes_are_counted_apart():
    def scattered(x):
        return (x.flatten(1)[:, 0].double() * 1e6).long() % 1000

    sampler = make(slots=4, batch=512, classify=scattered, classes=1000)
    looks = sample(sampler, range(len(INPUTS)))
    one_by_one = {
        id: sample(make(slots=1, batch=33, classify=scattered, classes=1000), [id])[id]
        for id in (4, 11)
    }
    assert {id: looks[id] for id in one_by_one} == one_by_one
    assert max(looks[11][1].votes) > 900


def test_rows_without_a_vote_are_missing():
    sampler = make(slots=2, batch=50, classify=lambda x: torch.full((50,), 3))
    [(_, look)] = one_look(sampler, 120)
    assert look.votes == {}
    assert look.missing == 120


def test_the_padding_of_a_batch_is_nobodys_vote():
    sampler = make(slots=2, batch=50, classify=lambda x: torch.arange(50) % 3)
    [(_, look)] = one_look(sampler, 60)
    assert look.votes == {0: 17 + 4, 1: 17 + 3, 2: 16 + 3}


def one_look(sampler, samples):
    sampler.request(sampler.open(0, INPUTS[0]), samples)
    looks = []
    while not looks:
        looks = sampler.advance()
    return looks


def test_noise_really_is_added_to_the_input():
    seen = []

    def watch(x):
        seen.append(x.clone())
        return torch.zeros(len(x), dtype=torch.long)

    one_look(make(slots=1, batch=2000, classify=watch), 2000)
    [rows] = seen
    np.testing.assert_allclose(rows.mean(0), INPUTS[0], atol=4.5 * 0.25 / 2000**0.5)
    np.testing.assert_allclose(rows.std(0), np.full((3, 4), 0.25), rtol=0.1)


def test_an_empty_batch_is_only_padding():
    counter = make(slots=1, batch=8).counter
    assert counter.run(Batch([], [])) is None
    assert counter.counts[:-1].sum() == 0


def test_kernels_get_the_rows_of_a_smaller_batch_as_one_block_of_memory(monkeypatch):
    runtime = Runtime("cpu", "float32", "none", 1000)
    settings = {"noise": Gaussian(0.25), "shape": (3, 4), "classes": 3, "slots": 1, "seed": 0}
    counter = VoteCounter(thirds, runtime, flexible=True, **settings)
    seen = []
    monkeypatch.setattr(
        counter.stream, "write", lambda out, inputs, segments, rows: seen.append((len(out), rows))
    )
    counter.run(Batch([Segment(0, 7, 20, 40)], [0]))
    counter.draw(INPUTS[0], [Segment(0, 7, 20, 40)], counter.noisy[:40])
    for size, rows in seen:
        assert rows.is_contiguous()
        assert rows.shape == (4, size)
        assert rows[:3, :2].tolist() == [[0, 0], [7, 7], [20, 21]]
    assert [size for size, _ in seen] == [64, 40]
