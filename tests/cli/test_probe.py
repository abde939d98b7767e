import json

PROBE = "probe --model fashion-cnn-clean --data fashion-mnist --device cpu --limit 20"


def test_probe_shows_a_row_for_each_sigma_and_one_without_noise_and_says_what_it_means(smoothcert):
    answer = smoothcert(f"{PROBE} --sigma 0.5,0.12")
    assert answer.code == 0, answer.err
    rows = [line.split() for line in answer.out.splitlines() if "%" in line and "█" in line]
    assert [row[0] for row in rows] == ["no", "0.12", "0.5"]
    assert "At sigma 0.5 the model is right on" in answer.out
    assert "put a denoiser in front of it" in answer.out


def test_probe_as_json(smoothcert):
    found = json.loads(smoothcert(f"{PROBE} --sigma 0.25 --copies 4 --json").out)
    assert [level["sigma"] for level in found["levels"]] == [0, 0.25]
    assert found["inputs"] == 20
    assert found["copies"] == 4
    assert all(0 <= level["accuracy"] <= 1 for level in found["levels"])
    assert found["reading"]
    assert all(
        low <= level["accuracy"] <= high
        for level in found["levels"]
        for low, high in [level["interval"]]
    )
    random = json.loads(
        smoothcert(f"{PROBE} --sigma 0.25 --copies 4 --stochastic --dtype float32 --json").out
    )
    assert (
        random["levels"][0] == found["levels"][0]
    )  # a model that draws no random numbers stays the same


def test_a_mistake_is_one_line(smoothcert):
    answer = smoothcert(f"{PROBE} --sigma quarter")
    assert answer == (
        2,
        "",
        "smoothcert: Invalid value for '--sigma': expected numbers separated by commas, got 'quarter'\n",
    )
