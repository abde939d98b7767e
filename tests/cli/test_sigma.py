import json

import smoothcert as sc


def test_the_command_chooses_and_says_so(smoothcert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = "certify --model fashion-cnn --data fashion-mnist --samples 200 --device cpu --batch 200 --limit 2"
    smoothcert(f"{job} --sigma 0.25 --out plain")
    monkeypatch.setattr("smoothcert.smoothed.smoothed._on_cuda", lambda runtime: True)
    told = smoothcert(f"{job} --sigma 0.25 --out grid")
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
