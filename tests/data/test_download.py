"""Data sets that download themselves, from a server on this machine."""

import gzip
import hashlib
import io
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from tests.refusals import refused

from smoothcert.data import load_dataset
from smoothcert.errors import InvalidInput

datasets = pytest.importorskip("torchvision.datasets")


@pytest.fixture
def server(tmp_path):
    """A folder that is served, its address, and the paths that were asked for."""
    asked = []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format, *args):
            asked.append(args[0])

    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()
    thread.join()


def _offer(monkeypatch, tmp_path, name, files, server):
    """Let torchvision name these files on the server as those of a data set."""
    folder, address, _ = server
    known = []
    for file, content in files.items():
        (folder / file).write_bytes(content)
        known.append((file, hashlib.md5(content).hexdigest()))
    if name == "cifar10":
        [(file, md5)] = known
        monkeypatch.setattr(datasets.CIFAR10, "url", f"{address}/{file}")
        monkeypatch.setattr(datasets.CIFAR10, "tgz_md5", md5)
    else:
        kind = datasets.MNIST if name == "mnist" else datasets.FashionMNIST
        monkeypatch.setattr(kind, "mirrors", [f"{address}/"])
        monkeypatch.setattr(kind, "resources", known)
    monkeypatch.setenv("SMOOTHCERT_DATA", str(tmp_path / "cache"))


def _idx(values):
    header = bytes([0, 0, 8, values.ndim]) + b"".join(
        int(n).to_bytes(4, "big") for n in values.shape
    )
    return gzip.compress(header + values.tobytes())


def _mnist(count=3):
    rng = np.random.default_rng(0)
    images, labels = (
        rng.integers(0, 256, (count, 28, 28), np.uint8),
        np.arange(count, dtype=np.uint8),
    )
    return {
        f"{part}-{kind}-ubyte.gz": _idx(values)
        for part in ("train", "t10k")
        for kind, values in (("images-idx3", images), ("labels-idx1", labels))
    }


@pytest.mark.parametrize(
    ("name", "train"), [("mnist", False), ("mnist", True), ("fashion-mnist", True)]
)
def test_files_are_downloaded_once(name, train, server, tmp_path, monkeypatch):
    _offer(monkeypatch, tmp_path, name, _mnist(), server)
    assert [load_dataset(name, train=train)[i][1] for i in range(3)] == [0, 1, 2]
    asked = len(server[2])
    assert load_dataset(name, train=train)[0][0].shape == (1, 28, 28)
    assert len(server[2]) == asked


def test_the_archive_of_cifar10_is_unpacked(server, tmp_path, monkeypatch):
    record = bytes([7]) + bytes(range(256)) * 12
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
        entry.size = len(record)
        archive.addfile(entry, io.BytesIO(record))
    _offer(monkeypatch, tmp_path, "cifar10", {"cifar-10-binary.tar.gz": packed.getvalue()}, server)
    [(x, label)] = [load_dataset("cifar10")[0]]
    assert (tuple(x.shape), label) == ((3, 32, 32), 7)


def test_a_file_with_another_checksum_is_refused(server, tmp_path, monkeypatch):
    _offer(monkeypatch, tmp_path, "mnist", _mnist(), server)
    (server[0] / "t10k-images-idx3-ubyte.gz").write_bytes(b"something else")
    with refused("download-failed", name="mnist"):
        load_dataset("mnist")


def test_without_a_network_there_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.MNIST, "mirrors", ["http://127.0.0.1:9/"])
    monkeypatch.setenv("SMOOTHCERT_DATA", str(tmp_path))
    sentence = r"cannot download mnist from .*: check the connection, .* as in mnist:DIR"
    with pytest.raises(InvalidInput, match=sentence):
        load_dataset("mnist")
