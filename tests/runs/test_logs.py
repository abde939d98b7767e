from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refused

from smoothcert import Gaussian
from smoothcert.runs.logs import read_log, read_votes, slack, votes
from smoothcert.statistics.bounds import lower_bound

SMALL = Path(__file__).parents[1] / "data" / "small-log.tsv"
PUBLISHED = Path(__file__).parents[3] / "shared" / "logs"
HEADER = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"


def written(tmp_path, *rows: str):
    path = tmp_path / "log.tsv"
    path.write_text(HEADER + "".join("\t".join(row.split()) + "\n" for row in rows))
    return read_log(path)


def test_a_log_is_read_as_arrays():
    log = read_log(SMALL)
    assert len(log) == 60
    assert log.name == "small-log"
    assert log.abstained.sum() == 5
    assert log.correct.sum() == 50
    assert log.seconds[0] == 1.088558


def test_correct_is_recomputed_from_label_and_prediction(tmp_path):
    log = written(tmp_path, "0 3 3 0.5 0 1.0", "1 3 4 0.5 1 1.0", "2 -1 -1 0.0 1 1.0")
    assert log.correct.tolist() == [True, False, False]


def test_a_running_total_in_the_column_correct_is_not_believed(tmp_path):
    """Logs of diffusion denoised smoothing have this column."""
    log = written(
        tmp_path, "0 3 3 0.5 1 1.0", "10 3 4 0.5 1 1.0", "20 5 5 0.25 2 1.0", "30 1 -1 0.0 2 1.0"
    )
    assert log.correct.tolist() == [True, False, True, False]
    assert log.acr == pytest.approx((0.5 + 0.25) / 4)


def test_votes_for_all_classes_are_read_with_their_labels(tmp_path):
    """Certify_Topk publishes such files."""
    path = tmp_path / "votes.txt"
    path.write_text("2 990 8 1\n500 400 100 2\n")
    counts, label = read_votes(path)
    assert counts.tolist() == [[2, 990, 8], [500, 400, 100]]
    assert label.tolist() == [1, 2]
    path.write_text("2 990 8 3\n")
    with refused("label-out-of-range", label=3, classes=3):
        read_votes(path)
    path.write_text("2 990 8 1\n500 400\n")
    with refused("not-a-table", what="table of votes"):
        read_votes(path)
    assert read_votes(SMALL) is None
    assert read_votes(tmp_path) is None


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published logs are not here")
def test_the_published_votes_sum_to_their_samples():
    counts, label = read_votes(PUBLISHED / "cifar10-votes-0.25.txt")
    assert set(counts.sum(axis=1)) == {100_000}
    assert counts.shape[1] == 10
    assert (counts.argmax(axis=1) == label).mean() > 0.5


def test_time_may_be_seconds_or_a_clock_or_absent(tmp_path):
    log = written(tmp_path, "0 3 3 0.5 1 16.6", "1 3 3 0.5 1 1:02:03.5", "2 3 3 0.5 1")
    assert log.seconds.tolist() == [16.6, 3723.5, 0.0]


def test_the_slack_is_half_of_the_last_of_three_digits(tmp_path):
    printed = ("1.91", "1.9", "0.486", "0.00135", "1.3e-05", "0.123456", "0.0")
    log = written(tmp_path, *(f"{i} 1 1 {r} 1 1" for i, r in enumerate(printed)))
    assert slack(log) == pytest.approx([5e-3, 5e-3, 5e-4, 5e-6, 5e-8, 5e-7, 0])


def test_printed_radii_lead_back_to_their_counts(tmp_path):
    noise, counts = Gaussian(0.5), np.array([5_200, 8_000, 9_900, 9_999, 10_000])
    radii = noise.radius(lower_bound(counts, 10_000, alpha=0.001))
    log = written(
        tmp_path, *(f"{i} 1 1 {r:.6f} 1 1" for i, r in enumerate(radii)), "9 1 -1 0.0 0 1"
    )
    assert votes(log, noise=noise, samples=10_000, alpha=0.001).tolist() == [*counts, 0]


def test_votes_stay_within_what_the_printed_digits_allow():
    log, noise = read_log(SMALL), Gaussian(0.5)
    found = votes(log, noise=noise, samples=10_000, alpha=0.001)[~log.abstained]
    radius = noise.radius(lower_bound(found, 10_000, alpha=0.001))
    next_vote = np.abs(
        noise.radius(lower_bound(np.maximum(found - 1, 1), 10_000, alpha=0.001)) - radius
    )
    assert np.all(
        np.abs(radius - log.radius[~log.abstained]) <= slack(log)[~log.abstained] + next_vote
    )


def test_a_radius_just_above_the_provable_maximum_means_all_votes(tmp_path):
    log = written(tmp_path, "0 1 1 1.91 1 1")  # the largest provable radius is 1.9057
    assert votes(log, noise=Gaussian(0.5), samples=100_000, alpha=0.001).tolist() == [100_000]


def test_a_log_that_cannot_come_from_the_settings_is_refused(tmp_path):
    log = written(tmp_path, "0 1 1 0.5 1 1", "7 1 1 1.96 1 1")
    with refused("impossible-radius", radius=1.96, id=7):
        votes(log, noise=Gaussian(0.5), samples=100_000, alpha=0.001)


@pytest.mark.parametrize(
    ("content", "code", "fields"),
    [
        (b"", "not-a-log", {"missing": "idx, label, predict, radius"}),
        (HEADER.encode(), "empty-log", {}),
        (b"idx\tlabel\tradius\n0\t1\t0.5\n", "not-a-log", {"missing": "predict"}),
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "not-a-log", {}),
        (b'{"a": "' + b"x" * 200_000 + b'"}', "not-a-log", {}),
        (
            HEADER.encode() + b"0\t1\t1\t0.5\t1\t1\n1\t1\tcat\t0.5\t1\t1\n",
            "damaged-log",
            {"number": 2},
        ),
        (HEADER.encode() + b"0\t1\t1\tnan\t1\t1\n", "damaged-log", {"number": 1}),
        (HEADER.encode() + b"0\t1\t1\tinf\t1\t1\n", "damaged-log", {"number": 1}),
        (HEADER.encode() + b"0\t1\t1\t-0.5\t1\t1\n", "damaged-log", {"number": 1}),
        (HEADER.encode() + b"0\t1\n", "damaged-log", {"number": 1}),
        (HEADER.encode() + b"1" + b"0" * 20 + b"\t1\t1\t0.5\t1\t1\n", "damaged-log", {"number": 1}),
        (HEADER.encode() + b"0\t1\t1\t0.5\t1\tsoon\n", "damaged-log", {"number": 1}),
    ],
)
def test_a_file_that_is_no_log_is_named(tmp_path, content, code, fields):
    path = tmp_path / "some.tsv"
    path.write_bytes(content)
    with refused(code, path=path, **fields):
        read_log(path)


def test_a_byte_order_mark_is_no_part_of_a_column(tmp_path):
    path = tmp_path / "log.tsv"
    path.write_bytes(b"\xef\xbb\xbf" + SMALL.read_bytes())
    assert len(read_log(path)) == 60


def test_a_missing_file_is_named(tmp_path):
    with refused("unreadable-file"):
        read_log(tmp_path / "none.tsv")


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="the published logs are not here")
def test_the_published_log_that_saturates_at_alpha_01_reads_with_it_alone():
    log = read_log(PUBLISHED / "cifar10-gaussian-0.50.tsv")
    assert votes(log, noise=Gaussian(0.5), samples=100_000, alpha=0.01).max() == 100_000
    with refused("impossible-radius"):
        votes(log, noise=Gaussian(0.5), samples=100_000, alpha=0.001)
