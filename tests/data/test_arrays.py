"""Arrays become inputs in [0, 1] with the channels first. Unsuitable arrays raise an error or a warning."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.refusals import refused

from smoothcert.data import ArrayDataset
from smoothcert.data.base import check_labels

RANDOM = np.random.default_rng(0)


def test_bytes_become_floats_in_the_unit_interval() -> None:
    # Those of images are divided without a warning.
    with pytest.warns(UserWarning, match="d: bytes are divided by 255"):
        x, label = ArrayDataset(np.array([[0, 51, 255]], np.uint8), np.array([2]), name="d")[0]
    assert x.dtype == torch.float32
    torch.testing.assert_close(x, torch.tensor([0, 0.2, 1]))
    assert label == 2


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ((4, 9, 8), (1, 9, 8)),
        ((4, 9, 8, 3), (3, 9, 8)),
        ((4, 9, 8, 1), (1, 9, 8)),
        ((4, 3, 9, 8), (3, 9, 8)),
        ((4, 3, 3, 3), (3, 3, 3)),
    ],
)
def test_images_get_their_channels_first(given: tuple[int, ...], seen: tuple[int, ...]) -> None:
    values = RANDOM.integers(0, 256, given, np.uint8)
    x, _ = ArrayDataset(values, name="d")[1]
    assert x.shape == seen
    if len(given) == 4 and seen != given[1:]:
        torch.testing.assert_close(
            x[0, 2, 5], torch.tensor(values[1, 2, 5, 0] / 255, dtype=torch.float32)
        )


def test_floats_whose_axes_are_moved_give_a_warning() -> None:
    with pytest.warns(
        UserWarning, match="the last axis is taken as channels and moved to the front"
    ):
        assert ArrayDataset(RANDOM.random((4, 9, 8, 3)), name="d")[0][0].shape == (3, 9, 8)


def test_sequences_of_floats_keep_their_shape() -> None:
    assert ArrayDataset(RANDOM.random((4, 9, 8)), name="d")[0][0].shape == (9, 8)


def test_missing_labels_are_unknown() -> None:
    assert ArrayDataset(np.zeros((2, 3)), name="d")[1][1] == -1


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_an_input_that_is_not_finite_does_not_affect_the_others(wrong: float) -> None:
    values = np.zeros((5, 2, 2))
    values[3, 1, 0] = wrong
    assert ArrayDataset(values, name="d")[2][0].isfinite().all()
    values[4] = 7
    with pytest.warns(UserWarning, match=r"values lie in \[0, 7\]"):
        ArrayDataset(values, name="d")


@pytest.mark.parametrize("value", [-0.1, 1.5, 255.0])
def test_inputs_outside_of_the_unit_interval_warn_of_the_radius_units(value: float) -> None:
    with pytest.warns(UserWarning, match="radii are in the units of these values"):
        ArrayDataset(np.array([[0.5, value]]), name="d")


@pytest.mark.parametrize(
    ("inputs", "labels", "code", "fields"),
    [
        (np.zeros((0, 3)), None, "not-inputs", {"shape": (0, 3)}),
        (np.zeros(4), None, "not-inputs", {"shape": (4,)}),
        (np.zeros((2, 3), np.int64), None, "not-values", {"type": np.int64}),
        (
            np.zeros((2, 3)),
            np.array([0, 1, 2]),
            "labels-of-other-shape",
            {"count": 2, "shape": (3,)},
        ),
        (np.zeros((2, 3)), np.array([0.0, 1.0]), "not-labels", {"type": np.float64}),
        (np.zeros((2, 3)), np.array(["a", "b"]), "not-labels", {"type": np.dtype("<U1")}),
        (np.zeros((2, 3)), np.array([0, -2]), "label-out-of-range", {"label": -2, "id": 1}),
    ],
)
def test_other_arrays_are_refused(
    inputs: np.ndarray, labels: np.ndarray | None, code: str, fields: dict
) -> None:
    with refused(code, name="d", **fields):
        ArrayDataset(inputs, labels, name="d")


def test_whole_numbers_that_are_no_images_may_be_tokens() -> None:
    with pytest.warns(UserWarning, match="tokens or categories"):
        ArrayDataset(np.zeros((2, 3), np.uint8), name="d")
    with refused("not-values") as raised:
        ArrayDataset(np.zeros((2, 3), np.int64), name="d")
    assert "tokens or categories" in raised.value.fields["expected"]


def test_labels_beyond_the_classes_are_refused() -> None:
    labels = np.array([0, 9, 10, -1])
    with refused("label-out-of-range", label=10, id=2, last=" to 9"):
        check_labels(labels, classes=10, name="d")
    check_labels(labels, classes=11, name="d")
    with refused("label-out-of-range", label=2, id=0):
        ArrayDataset(np.zeros((1, 2)), np.array([2]), name="d", class_names=("a", "b"))


def test_the_fingerprint_depends_on_the_content_alone() -> None:
    values, labels = RANDOM.integers(0, 256, (3, 4, 5, 3), np.uint8), np.arange(3)
    first = ArrayDataset(values, labels, name="one").fingerprint
    assert ArrayDataset(np.moveaxis(values, -1, 1).copy(), labels, name="two").fingerprint == first
    others = [
        ArrayDataset(values ^ 1, labels, name="one"),
        ArrayDataset(values, labels[::-1], name="one"),
        ArrayDataset(values.reshape(3, 5, 4, 3), labels, name="one"),
    ]
    assert first not in {other.fingerprint for other in others}
