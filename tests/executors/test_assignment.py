import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.executors.assignment import TRIES, Assignment


@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 7), st.randoms(use_true_random=False))
def test_every_input_is_finished_exactly_once_whatever_happens_to_workers(
    inputs, workers, capacity, random
):
    assignment = Assignment(range(inputs))
    open: dict[int, list[int]] = {}
    names = iter(range(10_000))
    finished: list[int] = []
    failures: dict[int, int] = {}
    while not assignment.done:
        while len(open) < workers:
            assignment.join(name := next(names), capacity)
            open[name] = []
        worker = random.choice(list(open))
        open[worker] += assignment.give(worker)
        assert len(open[worker]) <= capacity
        # No input is assigned to two workers.
        everywhere = [id for ids in open.values() for id in ids]
        assert len(everywhere) == len(set(everywhere))
        assert not set(everywhere) & set(finished)
        event = random.random()
        harmless = all(failures.get(id, 0) < TRIES - 1 for id in open[worker])
        if event < 0.05 and harmless:
            for id in open[worker]:
                failures[id] = failures.get(id, 0) + 1
            assignment.leave(worker, "lost")
            del open[worker]
        elif open[worker]:
            id = open[worker].pop(random.randrange(len(open[worker])))
            if event < 0.15 and failures.get(id, 0) < TRIES - 1:
                failures[id] = failures.get(id, 0) + 1
                assignment.fail(worker, id, "no luck")
            else:
                assert assignment.finish(worker, id)
                finished.append(id)
    assert sorted(finished) == list(range(inputs))


def test_only_the_worker_that_has_an_input_can_finish_it():
    assignment = Assignment([7])
    assignment.join("lost", 1)
    assert assignment.give("lost") == [7]
    assignment.leave("lost", "no answer")
    assignment.join("new", 1)
    assert assignment.give("new") == [7]
    assert not assignment.finish("lost", 7)
    assert assignment.finish("new", 7)
    assert not assignment.finish("new", 7)
    assert assignment.done


@pytest.mark.parametrize("poison", [0, 3, 19])
def test_the_error_names_the_input_that_kills_its_workers(poison):
    """Each worker has six open inputs, and dies when it gets the poisoned one."""
    assignment, finished = Assignment(range(20)), []
    for worker in range(TRIES):
        assert not assignment.given_up
        assignment.join(worker, 6)
        while poison not in (given := assignment.give(worker)):
            finished += [id for id in given if assignment.finish(worker, id)]
        assignment.leave(worker, "exit code -11")
    assert assignment.given_up.code == "input-failed"
    assert assignment.given_up.fields == {"id": poison, "tries": 3, "error": "exit code -11"}
    assignment.join("last", 6)
    while not assignment.done:  # inputs that were started before can still be finished
        finished += [id for id in assignment.give("last") if assignment.finish("last", id)]
    assert sorted(finished) == [id for id in range(max(finished) + 1) if id != poison]


def test_inputs_that_failed_before_never_share_a_worker():
    assignment = Assignment(range(8))
    assignment.join("a", 4)
    failed = set(assignment.give("a"))
    assignment.leave("a", "lost")
    assignment.join("b", 4)
    assert len(failed & set(assignment.give("b"))) == 1


def test_the_last_inputs_go_to_idle_workers_not_into_a_window():
    assignment = Assignment(range(100))
    for worker in "abcde":
        assignment.join(worker, 6)
    open = {worker: assignment.give(worker) for worker in "abcde"}
    assert [len(ids) for ids in open.values()] == [6] * 5
    for _ in range(14):  # in turn, each worker finishes its oldest input and asks for more
        for worker in "abcde":
            assignment.finish(worker, open[worker].pop(0))
            open[worker] += assignment.give(worker)
    assert [len(ids) for ids in open.values()] == [2] * 5
    assert not assignment.done
