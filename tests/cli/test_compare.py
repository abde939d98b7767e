"""`compare` and `gate` on the command line."""

import json

import pytest

from smoothcert.plans import Fixed


@pytest.fixture(scope="module")
def runs(on_disk):
    return on_disk("better", Fixed(1_000)).path, on_disk("worse", Fixed(1_000), most=0.6).path


def test_compare_says_which_run_certifies_more_and_writes_a_page(smoothcert, runs, tmp_path):
    better, worse = runs
    answer = smoothcert(f"compare {worse} {better} --radius 0.25 --report {tmp_path}/page.html")
    assert answer.code == 0
    assert "better certifies more than worse at 0.25: +" in answer.out
    page = (tmp_path / "page.html").read_text()
    assert "Is better as robust as worse?" in page
    assert "So this is not chance: better certifies more." in page
    plain = json.loads(smoothcert(f"compare {better} {worse} --radius 0.25 --json").out)
    assert (plain["verdict"], plain["certified_accuracy"][0]["only_b"]) == ("worse", [])


def test_compare_of_models_needs_its_options(smoothcert, tmp_path):
    bare = smoothcert("compare fashion-cnn fashion-cnn-clean --sigma 0.25").err
    assert "give --data and --radius R and --out DIR as well" in bare
    line = "compare fashion-cnn fashion-cnn-clean --data fashion-mnist --sigma 0.25"
    assert "give --radius R as well" in smoothcert(f"{line} --out {tmp_path}/both").err
    assert "give --out DIR as well" in smoothcert(f"{line} --radius 0.25").err


def test_an_option_for_models_is_not_ignored_with_runs(smoothcert, runs):
    for option in ("--samples 500", "--alpha 0.01", "--bound runner-up", "--dtype float32"):
        answer = smoothcert(f"compare {runs[0]} {runs[1]} --radius 0.25 {option}")
        assert answer.code == 2
        assert "to compare models, give --data" in answer.err


@pytest.mark.parametrize(
    ("least", "code", "word"), [(20, 0, "passes"), (90, 1, "fails"), (35, 3, "undecided")]
)
def test_the_exit_code_of_gate_is_its_outcome(smoothcert, runs, tmp_path, least, code, word):
    (tmp_path / "policy.toml").write_text(f'[certified_accuracy]\n"0.25" = {least}')
    answer = smoothcert(
        f"gate {runs[0]} --policy {tmp_path}/policy.toml --junit {tmp_path}/gate.xml"
    )
    assert (answer.code, answer.out.split()[0]) == (code, word)
    assert (tmp_path / "gate.xml").read_bytes().startswith(b"<?xml")
    assert (
        json.loads(smoothcert(f"gate {runs[0]} --policy {tmp_path}/policy.toml --json").out)[
            "outcome"
        ]
        == word
    )


def test_a_bad_policy_is_one_sentence_and_exit_code_2(smoothcert, runs, tmp_path):
    (tmp_path / "policy.toml").write_text("inputs = -1")
    answer = smoothcert(f"gate {runs[0]} --policy {tmp_path}/policy.toml")
    assert (answer.code, answer.err) == (2, "smoothcert: inputs must be at least 1, got -1\n")


def test_a_policy_that_does_not_exist_can_be_written(smoothcert, runs, tmp_path):
    missing = tmp_path / "missing.toml"
    answer = smoothcert(f"gate {runs[0]} --policy {missing}")
    assert answer.code == 2
    assert f"smoothcert gate {runs[0]} --init {missing}" in " ".join(answer.err.split())
