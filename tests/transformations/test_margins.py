"""Transformed pictures, and margins that cover all pictures of a cell."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage
from tests.refusals import refused

import smoothcert as sc
from smoothcert.plans import Cell
from smoothcert.transformations.margins import casting_error, cover
from smoothcert.transformations.pictures import transform
from smoothcert.transformations.second_route import Picture

ROTATION = sc.Rotation(sc.Gaussian(1.0))
ZOOM = sc.Zoom(sc.Gaussian(1.0))
KINDS = st.sampled_from([ROTATION, ZOOM, sc.Zoom(sc.Gaussian(1.0), 60)])


def float64(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def margin_of(x, transformation, near, far):
    ends = float64(near), float64(far)
    margin = float(cover(x[None], transformation, (ends[0] + ends[1]) / 2, *ends)[1])
    return np.ceil(margin * 2**24) / 2**24  # as in a run


def largest_distance(x, transformation, near, far, steps=2001):
    """The largest distance from the picture at the centre that a fine search finds in a cell."""
    amounts = torch.linspace(near, far, steps, dtype=torch.float64)
    pictures = transform(x.expand(steps, *x.shape), transformation, amounts)
    centre = transform(x[None], transformation, float64((near + far) / 2))
    return float((pictures - centre).flatten(1).norm(dim=1).max())


def picture(kind, seed, shape):
    """Random values, a steep edge, a bright corner, or single bright pixels."""
    rng = np.random.default_rng(seed)
    x = np.zeros(shape)
    if kind == "random":
        x = rng.random(shape)
    elif kind == "edge":
        x[:, :, shape[2] // 2 :] = 1
    elif kind == "corner":
        x[:, : shape[1] // 2, : shape[2] // 2] = 1
    else:
        x[rng.random(shape) < 0.1] = rng.choice([-1, 3])
    return torch.tensor(x)


@settings(max_examples=60, deadline=None)
@given(
    KINDS,
    st.sampled_from(["random", "edge", "corner", "pixels"]),
    st.integers(0, 100),
    st.sampled_from([(1, 8, 8), (3, 7, 10), (1, 3, 3), (2, 13, 5)]),
    st.floats(-19, 19),
    st.floats(1e-4, 8),
)
def test_no_picture_of_a_cell_is_further_than_its_margin(kind, content, seed, shape, near, width):
    x = picture(content, seed, shape)
    margin = margin_of(x, kind, near, near + width)
    assert largest_distance(x, kind, near, near + width, 301) <= margin


def test_wide_cells_of_flat_pictures_need_little_memory():
    x = torch.full((3, 32, 32), 0.5)
    assert margin_of(x, sc.Zoom(sc.Gaussian(1.0), 90), -90.0, 0.0) < 1e-4


@pytest.mark.parametrize("transformation", [ROTATION, ZOOM])
@pytest.mark.parametrize("width", [0.05, 0.5, 4.0])
def test_margins_are_tight_on_photographs(transformation, width):
    data = sc.load_dataset("fashion-mnist")
    for id in range(6):
        x = data[id][0]
        near = 3.0 * id - 9
        found = largest_distance(x, transformation, near, near + width, 201)
        margin = margin_of(x, transformation, near, near + width)
        assert found <= margin <= 1.3 * found + 3 * float(casting_error(x[None]))


def test_turned_pictures_are_those_of_another_program():
    x = torch.rand(1, 3, 21, 21, dtype=torch.float64)
    turned = transform(x, ROTATION, float64(17.0))[0]
    angle = np.radians(17)
    matrix = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    for channel, expected in zip(turned.numpy(), x[0].numpy(), strict=True):
        offset = 10 - matrix @ [10, 10]
        other = ndimage.affine_transform(expected, matrix, offset, order=1)
        inside = np.hypot(*(np.mgrid[:21, :21] - 10)) < 9.9
        difference = np.abs(channel - other)[inside].max()
        if difference > 1e-9:  # the other program may count angles the other way
            other = ndimage.affine_transform(expected, matrix.T, 10 - matrix.T @ [10, 10], order=1)
            difference = np.abs(channel - other)[inside].max()
        assert difference < 1e-9
        assert (channel[~(np.hypot(*(np.mgrid[:21, :21] - 10)) <= 10)] == 0).all()


def test_a_picture_that_is_not_turned_is_only_masked():
    x = torch.rand(1, 1, 9, 9)
    once = transform(x, ROTATION, float64(0.0))
    inside = once != 0
    assert torch.equal(once[inside], x[inside].double())
    assert torch.equal(transform(once, ROTATION, float64(0.0)), once)
    assert once[0, 0, 0, 0] == 0


def test_a_picture_that_is_not_zoomed_stays_as_it_is():
    x = torch.rand(1, 2, 8, 9)
    assert torch.equal(transform(x, ZOOM, float64(0.0)), x.double())


@pytest.mark.parametrize("percent", [-60, -20, -1, 20, 60])
def test_zoomed_pictures_are_those_of_another_program(percent):
    x = torch.rand(1, 3, 9, 12, dtype=torch.float64)
    zoomed = transform(x, ZOOM, float64(percent))[0]
    scale = 1 / (1 + percent / 100)
    centre = np.array([4, 5.5])
    for channel, expected in zip(zoomed.numpy(), x[0].numpy(), strict=True):
        other = ndimage.affine_transform(
            expected, [scale, scale], centre * (1 - scale), order=1, mode="nearest"
        )
        assert np.abs(channel - other).max() < 1e-9


def test_only_pictures_are_transformed():
    with refused("not-pictures"):
        transform(torch.rand(1, 9), ROTATION, float64(0.0))


@pytest.mark.parametrize("transformation", [ROTATION, ZOOM])
@pytest.mark.parametrize("content", ["random", "edge", "pixels"])
def test_the_second_route_proves_margins_and_refutes_smaller_ones(transformation, content):
    x = picture(content, 3, (2, 11, 9))
    checked = Picture(x.numpy(), transformation)
    for near, far in ((0.0, 0.3), (-7.0, -4.0), (11.0, 11.01)):
        cell = Cell((near + far) / 2, near, far)
        margin = margin_of(x, transformation, near, far)
        assert checked.covers(cell, margin)
        found = largest_distance(x, transformation, near, far)
        assert not checked.covers(cell, 0.999 * found)
        assert not checked.covers(cell, margin / 2)
