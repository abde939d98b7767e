import json

import numpy as np

import smoothcert as sc


def test_the_command_chooses_and_says_so(smoothcert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = "certify --model fashion-cnn --data fashion-mnist --samples 200 --device cpu --batch 200 --limit 2"
    smoothcert(f"{job} --sigma 0.25 --out plain")
    told = smoothcert(f"{job} --sigma 0.25 --joint --out grid")
    assert told.code == 0
    assert told.err.count("--noise gaussian:0.25") == 1
    smoothcert(f"{job} --noise gaussian:0.25 --out named")
    noises = [sc.open_run(folder).noise for folder in ("plain", "grid", "named")]
    assert noises == [sc.Gaussian(0.25), sc.GridGaussian(0.25, size=784), sc.Gaussian(0.25)]
    again = smoothcert(f"{job.replace('--limit 2', '--limit 3')} --sigma 0.25 --out plain")
    assert (again.code, sc.open_run("plain").noise) == (0, sc.Gaussian(0.25))
    [*_, row] = json.loads(smoothcert("table plain grid --json").out)["runs"]
    assert row["noise"].startswith("GridGaussian(sigma=0.25")
    assert "grid-gaussian:0.25 " in smoothcert("table plain grid").out
    replayed = smoothcert("replay grid --sigma 0.25 --samples 200 --decline 0.1")
    assert (replayed.code, replayed.err) == (0, "")


def test_several_sigmas_are_one_run_each_and_one_page_that_recommends(
    smoothcert, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    job = (
        "certify --model fashion-cnn --data fashion-mnist --samples 200 "
        "--device cpu --batch 200 --limit 3 --out sweep"
    )
    told = smoothcert(f"{job} --sigma 0.25,0.5 --radii 0,0.25")
    assert told.code == 0
    assert "Take sigma-0." in told.out
    page = (tmp_path / "sweep" / "report.html").read_text()
    assert "Which one to take" in page
    found = json.loads(smoothcert(f"{job} --sigma 0.25,0.5 --radii 0,0.25 --json").out)
    assert [row["name"] for row in found["runs"]] == ["sigma-0.25", "sigma-0.5"]
    assert found["recommendation"]["reasons"][0] in page
    assert found["complete"]
    assert [sc.open_run(f"sweep/sigma-{s}").noise for s in ("0.25", "0.5")] == [
        sc.Gaussian(0.25),
        sc.Gaussian(0.5),
    ]


def test_every_sigma_can_have_a_model_of_its_own(smoothcert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    head = "import torch\n"
    model = "def at_{0}():\n    return lambda x: torch.stack([{0} - x[:, 0], x[:, 0] - {0}], 1)\n"
    (tmp_path / "pair.py").write_text(head + model.format(1) + model.format(2))
    np.savez("data.npz", x=np.zeros((2, 3), np.float32))
    job = "certify --data data.npz --samples 200 --device cpu --batch 200 --out sweep --sigma 1,2"
    told = smoothcert(f"{job} --model pair.py:at_{{sigma:.0f}}")
    assert told.code == 0
    assert [sc.open_run(f"sweep/sigma-{s}").manifest.model for s in (1, 2)] == [
        "pair:at_1",
        "pair:at_2",
    ]
    assert "Take" not in told.out  # without labels
    wrong = smoothcert(f"{job} --model pair.py:at_{{sigma:d}}")
    assert wrong.code == 2
    assert "cannot fill in {sigma}" in wrong.err
