import sys
from pathlib import Path

import pytest

from smoothcert.executors import LocalExecutor

sys.path.insert(0, str(Path(__file__).parent))  # workers inherit this path

from jobs import Job, rows


@pytest.fixture
def job(tmp_path):
    return Job(tmp_path)


@pytest.fixture(scope="session")
def expected(tmp_path_factory):
    """The rows that every executor must produce."""
    return rows(Job(tmp_path_factory.mktemp("expected") / "job").run(LocalExecutor()))
