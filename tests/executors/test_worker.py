from unittest.mock import MagicMock

from smoothcert.errors import InvalidInput
from smoothcert.executors.worker import Failed, Worker


def test_what_is_finished_before_a_failure_is_reported_first():
    def step():
        yield certificate
        raise InvalidInput("mistake", "a mistake")

    worker, certificate = Worker(MagicMock()), MagicMock()
    worker._local = MagicMock()
    worker._local.engine.return_value = MagicMock(free=0, busy=2, step=step)
    assert worker.advance([0, 1]).finished == (certificate,)
    for _ in range(2):
        assert worker.advance([]) == Failed("a mistake", final=True)
