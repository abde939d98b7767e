import base64
import io

import numpy as np
import pytest
from PIL import Image

from smoothcert.report import thumbnails as module
from smoothcert.report.thumbnails import picture_of, thumbnails


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


def test_the_most_telling_inputs_come_first_when_there_is_little_room(iss_run, monkeypatch):
    one = len(picture_of(Grey()[0][0]))
    monkeypatch.setattr(module, "BUDGET", 3 * one)
    easiest = iss_run.id[np.argsort(-iss_run.radius)]
    found = thumbnails(Grey(), [iss_run])
    assert len(found) == 3
    assert iss_run.radius[np.isin(iss_run.id, list(found))].min() >= iss_run.radius[iss_run.id == easiest[20]][0]


def test_ids_that_the_data_set_does_not_have_are_left_out(iss_run):
    assert set(thumbnails(Grey(), [iss_run])) == {id for id in iss_run.id.tolist() if id < 500}
