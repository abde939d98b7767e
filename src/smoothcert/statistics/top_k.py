"""Whether a class stays among the k most probable ones under every change of size r.

The claim is that fewer than k other classes ever have at least its probability. Symbols:

    p    lower bound on the probability of the class, at alpha / 2
    u_i  upper bound on that of each other class, at alpha / (2 k)
    q_t  min(sum of the t smallest among the k largest u_i, 1 - p), for t = 1 ... k
    U_r  the most that any set of probability q can get (`Noise.largest_probability`)
    L_r  L_r(p) = 1 - U_r(1 - p): the least that is left of p

    proved if  L_r(p) > U_r(q_t) / t  for some t                                         (top k)

If the claim is false, some change gives k rivals at least the probability of the class. Any t of
them together then have at least t times that, and they had at most q_t before the change. Only the
bounds of these k rivals and p have to hold, so alpha / 2 is divided by k, whatever the number of
classes (union bound).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.noises import Noise
from smoothcert.noises.base import bisect_each
from smoothcert.statistics.bounds import Array, one_minus_up

_MARGIN = 1e-11
"""Relative; U_r is computed to 1e-12, and q_t is a sum of few bounds."""
_HALVINGS = 60
"""Of the interval of a radius: more than the bits of a floating-point number."""
_LARGEST_RADIUS = 2.0**40


def joint_bounds(noise: Noise, lower: Array, rivals: ArrayLike) -> tuple[Array, Array]:
    """p (..., 1) and q_t (..., k) under the noise of the theorem: `drawing_error` is charged to
    every bound before they are summed.

    Args:
        noise: The smoothing noise.
        lower: p (...).
        rivals: The k largest u_i (..., k), in any order.
    """
    p = np.maximum(np.nextafter(np.asarray(lower, float) - noise.drawing_error, -1), 0)[..., None]
    u = np.sort(np.asarray(rivals, float), axis=-1) + noise.drawing_error
    sums = np.cumsum(u, axis=-1) * (1 + _MARGIN)
    return p, np.minimum(sums, one_minus_up(p))


def stays_within(noise: Noise, p: Array, q: Array, radius: ArrayLike) -> Array:
    """Whether a radius is proved by each t (top k), in the shape of q.

    Args:
        noise: The smoothing noise.
        p: From `joint_bounds`.
        q: From `joint_bounds`.
        radius: Radii r, in the shape of q.
    """
    t = np.arange(1, q.shape[-1] + 1)
    left = 1 - noise.largest_probability(radius, one_minus_up(p)) * (1 + _MARGIN)
    reached = noise.largest_probability(radius, q) * (1 + _MARGIN)
    return np.asarray(left > reached / t)


def top_k_radius(noise: Noise, lower: ArrayLike, rivals: ArrayLike) -> Array:
    """The largest radius that is proved (top k), rounded down; NaN if none is.

    Args:
        noise: The smoothing noise.
        lower: p (...).
        rivals: The k largest u_i (..., k), in any order.
    """
    p, q = joint_bounds(noise, np.asarray(lower, float), rivals)
    nothing = np.zeros(q.shape)
    high = np.ones(q.shape)
    while high.flat[0] < _LARGEST_RADIUS and stays_within(noise, p, q, high).any():
        high = 2 * high
    radius = bisect_each(lambda r: stays_within(noise, p, q, r), nothing, high, halvings=_HALVINGS)
    whole = np.rint(radius)  # the radii of some noises are whole numbers
    radius = np.where(stays_within(noise, p, q, whole), np.maximum(radius, whole), radius)
    best = np.where(stays_within(noise, p, q, nothing), radius, -1.0).max(axis=-1)
    return np.where(best > 0, best, np.nan)
