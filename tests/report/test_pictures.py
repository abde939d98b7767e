import base64
import io

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image

from smoothcert.report.pictures import (
    NORMS,
    by_interest,
    concentrated_change,
    distance,
    picture_of,
    pictures_of,
)

images = st.builds(
    lambda seed, channels, levels: (
        np.random.default_rng(seed).integers(0, levels + 1, (channels, 6, 5)) / levels
    ),
    st.integers(0, 1000),
    st.sampled_from([1, 3]),
    st.sampled_from([1, 2, 255]),
)


@given(x=images, radius=st.floats(1e-3, 3), norm=st.sampled_from(["l2", "l1"]))
def test_a_change_is_exactly_as_large_as_the_radius_and_stays_a_picture(x, radius, norm):
    assume(radius <= distance(x, (x < 0.5).astype(float), norm))  # no picture is farther away
    changed = concentrated_change(x, radius, norm)
    assert distance(changed, x, norm) == pytest.approx(radius, rel=1e-9)
    assert changed.shape == x.shape
    assert changed.min() >= 0
    assert changed.max() <= 1


@given(x=images, values=st.integers(0, 30))
def test_in_l0_a_change_is_of_so_many_values(x, values):
    assert distance(concentrated_change(x, values, "l0"), x, "l0") == values


@given(x=images, pixels=st.integers(0, 30))
def test_in_l0_of_pixels_a_change_is_of_so_many_whole_pixels(x, pixels):
    changed = concentrated_change(x, pixels, "l0 of pixels")
    assert distance(changed, x, "l0 of pixels") == pixels
    assert distance(changed, x, "l0") == pixels * len(x)
    assert distance(changed[0], x[0], "l0 of pixels") == pixels  # a picture without channels


def test_a_change_takes_as_few_pixels_as_possible():
    grey = np.full((1, 9, 9), 0.5)
    assert distance(concentrated_change(grey, 0.5, "l2"), grey, "l0") == 1
    assert distance(concentrated_change(grey, 0.51, "l2"), grey, "l0") == 2
    in_the_middle = concentrated_change(np.zeros((1, 9, 9)), 1.0, "l2")[0, 4, 4]
    assert in_the_middle == pytest.approx(1)


def test_distances_are_norms_of_the_difference():
    x, y = np.array([[[0.0, 0.5]], [[1.0, 0.5]]]), np.array([[[1.0, 0.5]], [[0.0, 0.5]]])
    assert [distance(x, y, norm) for norm in NORMS] == pytest.approx([np.sqrt(2), 2, 2, 1])
    assert all(distance(x, x, norm) == 0 for norm in NORMS)


def opened(uri):
    kind, _, content = uri.partition(",")
    assert kind == "data:image/png;base64"
    return Image.open(io.BytesIO(base64.b64decode(content)))


def test_a_grey_picture_keeps_its_pixels():
    x = np.linspace(0, 1, 16, dtype=np.float32).reshape(1, 4, 4)
    np.testing.assert_array_equal(np.asarray(opened(picture_of(x))), np.rint(255 * x[0]))


def test_a_colour_picture_is_shrunk_to_a_thumbnail_of_the_same_shape():
    x = np.zeros((3, 128, 256), np.float32)
    x[0] = 1
    image = opened(picture_of(x))
    assert image.size == (64, 32)
    assert image.getpixel((10, 10)) == (255, 0, 0)


@pytest.mark.parametrize("shape", [(20,), (5, 16, 16), (1, 2, 2), (2, 3, 8, 8)])
def test_what_is_no_image_has_no_picture(shape):
    assert picture_of(np.zeros(shape, np.float32)) is None


def test_pictures_outside_of_the_range_of_values_are_clipped():
    x = np.array([np.nan, -1, 2, 0.5], np.float32).repeat(4).reshape(1, 4, 4)
    assert np.asarray(opened(picture_of(x)))[:, 0].tolist() == [0, 0, 255, 128]


class Grey:
    def __len__(self):
        return 500

    def __getitem__(self, index):
        return np.full((1, 8, 8), 0.5, np.float32), 0


def test_the_easiest_inputs_come_first_when_there_is_little_room(iss_run):
    one = len(picture_of(Grey()[0][0]))
    pictures = pictures_of(Grey(), [iss_run], by_interest([iss_run]), budget=3 * one)
    assert len(pictures) == 3
    radii = iss_run.radius[np.isin(iss_run.id, list(pictures))]
    assert radii.min() >= np.sort(iss_run.radius)[-21]


def test_ids_that_the_data_set_does_not_have_are_left_out(iss_run):
    pictures = pictures_of(Grey(), [iss_run], iss_run.id.tolist())
    assert set(pictures) == {id for id in iss_run.id.tolist() if id < 500}
