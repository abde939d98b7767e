"""Tests on a real Ray cluster with several nodes (raylets) on this machine."""

import os
import random
import signal
import sys
from pathlib import Path

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
from tests.refusals import refused

from smoothcert.errors import MissingExtra
from smoothcert.executors import LocalExecutor, choose_executor

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.annexes,
    pytest.mark.ray,
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning"
    ),  # Ray does not close its sockets and log files
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*zero GPUs.*:FutureWarning"),
]


@pytest.fixture(scope="module")
def cluster():
    """A head node without room for workers, and a node with room for one. Tests add other nodes."""
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 100 * 2**20, "include_dashboard": False}
    soon = {
        "health_check_initial_delay_ms": 0,
        "health_check_period_ms": 500,
        "health_check_failure_threshold": 3,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(
            "PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep
        )  # for the tampered model
        cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": soon, **small}
        )
        cluster.add_node(num_cpus=1, **small)
        cluster.small = small
        yield cluster
        cluster.shutdown()


@pytest.fixture
def node(cluster):
    """A second node."""
    node = cluster.add_node(num_cpus=1, **cluster.small)
    yield node
    if node in cluster.list_all_nodes():
        cluster.remove_node(node)


def on(cluster, workers="2"):
    return choose_executor("ray", address=cluster.address, workers=workers)


def test_two_nodes_write_the_same_rows_as_one_process(job, expected, cluster, node):
    progress = At()
    run = job.run(on(cluster), progress=progress, trouble="wait", times=2)
    assert rows(run) == expected
    assert [worker.finished > 0 for worker in progress.status.workers] == [True, True]
    assert not ray.is_initialized()
    assert eventually(lambda: not any(map(alive, job.workers())))


def test_a_worker_killed_at_a_random_moment_costs_nothing_but_time(job, expected, cluster, node):
    moment = random.randrange(1, INPUTS // 2)
    progress = At(moment, lambda: os.kill(random.choice(job.workers()), signal.SIGKILL))
    assert rows(job.run(on(cluster), progress=progress, trouble="wait", times=2)) == expected
    assert (
        moment < 11 or "lost the worker on" in progress.said
    )  # before that, the worker may not have started yet


def test_a_lost_node_costs_nothing_but_time(job, expected, cluster, node):
    def lose():
        cluster.remove_node(node, allow_graceful=False)
        assert eventually(
            lambda: not all(map(alive, job.workers()))
        )  # the worker has noticed that its node is gone

    progress = At(11, lose)
    assert rows(job.run(on(cluster), progress=progress, trouble="wait", times=2)) == expected
    assert "lost the worker on" in progress.said


def test_a_node_that_joins_later_is_used(job, expected, cluster):
    joined = []
    progress = At(4, lambda: joined.append(cluster.add_node(num_cpus=1, **cluster.small)))
    try:
        assert (
            rows(job.run(on(cluster, "auto"), progress=progress, trouble="wait", times=2))
            == expected
        )
    finally:
        cluster.remove_node(*joined)
    assert [worker.finished > 0 for worker in progress.status.workers] == [True, True]


def test_a_run_begun_in_this_process_is_completed_by_ray_past_a_worker_that_raises(
    job, expected, cluster
):
    with pytest.raises(Interrupted):
        job.run(LocalExecutor(), progress=At(5, interrupt))
    progress = At()
    assert rows(job.run(on(cluster, "1"), progress=progress, trouble="raise", at=20)) == expected
    assert "reading input 20 of tampered fails (RuntimeError): the disk is on fire" in progress.said


def test_ctrl_c_stops_a_ray_instance_that_we_started(tmp_path):
    command = (
        "certify --model fashion-cnn --weights none --data fashion-mnist --sigma 0.25 --batch 64"
    )
    with started(f"{command} --executor ray --workers 2", out=tmp_path / "run") as process:
        assert eventually(lambda: committed(tmp_path / "run"), seconds=90)
        assert len(session(process.pid)) > 3
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert "interrupted" in process.communicate(timeout=60)[1]
        assert process.returncode == 130
        assert eventually(lambda: not session(process.pid), seconds=30)


def test_wrong_settings_are_refused(job, cluster):
    with refused("cluster-not-reached", address="127.0.0.1:9"):
        job.run(choose_executor("ray", address="127.0.0.1:9"))
    with refused("cluster-without-gpu"):
        job.run(choose_executor("ray", address=cluster.address, gpus_per_worker=1))
    with refused("not-number-or-auto", name="workers", value="many"):
        choose_executor("ray", workers="many")
    with refused("not-address", value="nowhere"):
        choose_executor("ray", address="nowhere")
    with refused("not-at-least", name="gpus_per_worker", value=-1, least=0):
        choose_executor("ray", gpus_per_worker=-1)


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "smoothcert.executors.ray", raising=False)
    with refused("missing-extra", MissingExtra, extra="ray"):
        choose_executor("ray")
