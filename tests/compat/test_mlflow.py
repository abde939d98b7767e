"""MLflow as users have it: a database, a folder and a real server.

These tests need the extra `mlflow`; that of the server also needs the package `mlflow`.
"""

import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

import smoothcert as sc

mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

_SECONDS_TO_START = 120


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a server that this test has started."""
    pytest.importorskip("flask", reason="mlflow-skinny has no server")
    folder = tmp_path_factory.mktemp("server")
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/server.db"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    with (
        open(folder / "log", "wb") as log,
        subprocess.Popen(command, cwd=folder, stdout=log, stderr=log) as process,
    ):
        address = f"http://127.0.0.1:{port}"
        try:
            _wait_for(address, process)
            yield address
        finally:
            process.terminate()


def _wait_for(address, process):
    give_up = time.monotonic() + _SECONDS_TO_START
    while time.monotonic() < give_up and process.poll() is None:
        try:
            urlopen(f"{address}/health").close()
            return
        except URLError:
            time.sleep(0.2)
    pytest.fail("the server did not start")


@pytest.fixture(params=["database", "folder", "server"])
def address(request, tmp_path, monkeypatch):
    """Where MLflow keeps runs."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # newer versions ask for this
    monkeypatch.chdir(tmp_path)
    if request.param == "server":
        address = request.getfixturevalue("server")
    elif request.param == "folder":
        address = (tmp_path / "folder").as_uri()
    else:
        address = f"sqlite:///{tmp_path}/runs.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(address)
    yield address
    mlflow.set_tracking_uri(before)


def test_mlflow_gets_settings_certified_accuracy_and_the_page(address, tmp_path):
    run = sc.certify(
        "fashion-cnn",
        "fashion-mnist",
        noise=sc.Gaussian(0.25),
        plan=sc.AtRadii([0, 0.25], 500),
        limit=3,
        device="cpu",
        batch=250,
        out=tmp_path / "run",
        progress=[sc.Progress(), sc.MLflow("robust", name="first")],
    )
    client = mlflow.MlflowClient(tracking_uri=address)
    experiment = client.get_experiment_by_name("robust").experiment_id
    [kept] = client.search_runs([experiment])
    assert (kept.info.run_name, kept.info.status) == ("first", "FINISHED")
    assert kept.data.params["weights_hash"] == run.manifest.weights_hash
    assert kept.data.params["plan"] == str(run.plan)
    proved = dict(zip(run.decided_radii, run.certified_accuracy(run.decided_radii), strict=True))
    for radius, share in proved.items():
        assert kept.data.metrics[f"certified_accuracy/{radius:g}"] == share
    assert kept.data.metrics["inputs"] == 3
    folder = client.download_artifacts(kept.info.run_id, "", str(tmp_path))
    assert "Robustness certificates" in Path(folder, "report.html").read_text()
