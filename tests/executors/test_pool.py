"""Tests of the driver alone, with workers whose messages are scripted."""

from collections import deque
from dataclasses import replace

import pytest
from tests.refusals import refused

from smoothcert import Fixed, Gaussian
from smoothcert.device.runtime import Runtime
from smoothcert.errors import InvalidInput, ModelFailed, SmoothcertError
from smoothcert.executors import Job, LocalExecutor, Status, choose_executor
from smoothcert.executors.pool import PoolExecutor
from smoothcert.executors.worker import Failed, Ready, Report
from smoothcert.plans import Certificate, Look
from smoothcert.smoothed import Subject

PLAN, NOISE = Fixed(1000, pilot=100), Gaussian(0.5)
LEFT_OPEN = Runtime("cuda:0", "bfloat16", "default")
SETTLED = replace(LEFT_OPEN, batch=512)
READY = Ready("here", SETTLED, capacity=3)


class Scripted(PoolExecutor):
    """A pool whose workers send scripted messages.

    The first messages of the workers are `starts`, then `READY`. The answers to calls are `answers`, then reports that
    finish every input of the call.
    """

    launch_interval = 0.0

    def __init__(self, *starts, places=1, answers=()):
        super().__init__()
        self.starts, self.answers = deque(starts), deque(answers)
        self.room = places
        self.launched = []
        self.messages = deque()
        self.in_flight = []

    def places(self):
        return self.room

    def launch(self, runtime):
        self.launched.append(runtime)
        self.messages.append((len(self.launched), self.starts.popleft() if self.starts else READY))
        return len(self.launched)

    def send(self, worker, ids):
        answer = self.answers.popleft() if self.answers else None
        looks = [Look(100, {1: 100}), Look(1000, {1: 1000})]
        finished = tuple(Certificate.from_votes(looks, plan=PLAN, noise=NOISE, id=id) for id in ids)
        self.messages.append((worker, answer or Report(finished, (), Status())))
        self.in_flight.append(sum(other == worker for other, _ in self.messages))

    def receive(self):
        return [self.messages.popleft() for _ in range(len(self.messages))]

    def discard(self, worker):
        self.messages = deque(
            (other, message) for other, message in self.messages if other != worker
        )


def certified(executor, count=20):
    subject = Subject(lambda x: x, noise=NOISE).at(LEFT_OPEN)
    executor.start(Job(subject, None, PLAN), lambda message: None)
    return sorted(
        certificate.id for finished in executor.certify(range(count)) for certificate in finished
    )


def test_the_first_worker_chooses_the_runtime_for_all():
    executor = Scripted(places=3)
    assert certified(executor) == list(range(20))
    assert executor.launched == [LEFT_OPEN, SETTLED, SETTLED]


def test_a_worker_on_another_device_of_the_same_kind_is_accepted():
    second = replace(READY, runtime=replace(SETTLED, device="cuda:1"))
    assert certified(Scripted(READY, second, places=2)) == list(range(20))


def test_a_worker_with_another_runtime_stops_the_run():
    other = replace(READY, place="there", runtime=replace(SETTLED, compile="none"))
    with refused("other-runtime", SmoothcertError, place="there", first=SETTLED):
        certified(Scripted(READY, other, places=2))


def test_workers_have_two_calls_in_flight():
    executor = Scripted()
    certified(executor)
    assert max(executor.in_flight) == 2


def test_three_failed_starts_stop_the_run_with_the_reason():
    with refused("no-worker-starts", SmoothcertError, tries=3, error="no driver"):
        certified(Scripted(*[Failed("no driver")] * 3))


def test_failed_starts_do_not_stop_a_run_that_has_a_worker():
    assert certified(Scripted(READY, *[Failed("no driver")] * 5, places=2), count=200) == list(
        range(200)
    )


def test_a_mistake_of_the_user_is_not_tried_again():
    executor = Scripted(Failed("the model is in training mode", final=True))
    with refused("worker-failed", error="the model is in training mode"):
        certified(executor)
    assert len(executor.launched) == 1


def test_a_worker_that_fails_both_calls_is_replaced_once():
    executor = Scripted(answers=[Failed("gone"), Failed("gone")])
    assert certified(executor) == list(range(20))
    assert len(executor.launched) == 2


def test_a_warning_of_the_first_worker_reaches_the_user():
    with pytest.warns(UserWarning, match="compilation failed"):
        certified(Scripted(replace(READY, warnings=("compilation failed",))))


def test_without_options_this_process_does_the_work():
    assert isinstance(choose_executor("local"), LocalExecutor)


def test_a_model_that_fails_later_may_work_on_another_worker():
    assert not Failed.from_error(ModelFailed("model-failed", "CUDA error")).final
    assert Failed.from_error(InvalidInput("too-small", "{name} is too small", name="sigma")).final
