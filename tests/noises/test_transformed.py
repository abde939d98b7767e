"""What transformations of pictures are, without torch."""

import numpy as np
import pytest
from tests.refusals import refused

from smoothcert.noises import Gaussian, GridGaussian, Laplace
from smoothcert.noises.transformed import Rotation, Zoom


@pytest.mark.parametrize("noise", [Laplace(0.5), GridGaussian(0.5), 0.5])
def test_only_noises_in_l2_off_the_grid_are_taken(noise):
    with refused("not-for-transformations"):
        Rotation(noise)


def test_no_single_probability_proves_an_angle():
    with refused("needs-walk"):
        Rotation(Gaussian(0.5)).certified_radius(0.99)


@pytest.mark.parametrize("transformation", [Rotation(Gaussian(1)), Zoom(Gaussian(1))])
def test_positions_of_a_cell_are_within_the_path_from_its_centre(transformation):
    amounts = np.linspace(-20, 20, 41)
    modulus, angle = transformation.polar(amounts)
    at = modulus * np.exp(1j * angle)
    length, turn = transformation.path(amounts[:, None], amounts)
    assert np.all(np.abs(at[:, None] - at) <= length * (1 + 1e-12))
    turned = np.angle(at[:, None] / at)
    assert np.all(np.abs(turned) <= turn + 1e-12)
    if transformation.keeps_disk:
        assert np.all(np.abs(at) <= 1 + 1e-12)  # nothing outside is read


def test_its_short_form_makes_it_again():
    noise = Rotation(Gaussian(0.25), 12.5)
    assert noise.short == "Rotation(Gaussian(sigma=0.25), 12.5)"
    assert eval(noise.short) == noise
