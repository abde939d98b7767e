from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from smoothcert.sampling.sampler import Packer
from smoothcert.sampling.streams import Segment

requests = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 50)), max_size=30)


@given(requests, st.integers(1, 40), st.integers(0, 10))
def test_every_requested_row_is_served_once_and_in_order(requests, size, taken_between):
    packer = Packer(size)
    drawn = Counter()
    asked, served, completed = [], [], Counter()

    def take():
        batch = packer.take()
        assert batch.rows <= size
        served.extend((s.id, i) for s in batch.segments for i in range(s.first, s.first + s.count))
        completed.update(batch.completed)
        return batch

    for slot, count in requests:
        packer.add(Segment(slot, 10 * slot, drawn[slot], count))
        asked += [(10 * slot, drawn[slot] + i) for i in range(count)]
        drawn[slot] += count
        for _ in range(taken_between):
            if packer.rows >= size:
                assert take().rows == size
    while packer.rows:
        left = packer.rows
        assert take().rows == min(size, left)
    assert served == asked
    assert completed == Counter(slot for slot, _ in requests)


@given(requests, st.integers(1, 40))
def test_a_request_is_complete_in_the_batch_that_holds_its_last_row(requests, size):
    packer = Packer(size)
    left = {}
    for slot, (_, count) in enumerate(requests):
        packer.add(Segment(slot, slot, 0, count))
        left[slot] = count
    while packer.rows:
        batch = packer.take()
        for segment in batch.segments:
            left[segment.slot] -= segment.count
        assert batch.completed == [s.slot for s in batch.segments if not left[s.slot]]
