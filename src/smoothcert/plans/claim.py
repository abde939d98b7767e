"""What a plan claims: the probability of the class from which on the radius that it certifies is true."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from smoothcert.noises import Noise
from smoothcert.plans.base import Plan


def claims_its_bound(plan: Plan) -> bool:
    """Whether the radius is the one that the noise gives for the lower bound, so that it is true if the bound is."""
    return type(plan).certified_radius is Plan.certified_radius


def needed_for_claim(plan: Plan, noise: Noise, lower: NDArray[np.float64]) -> NDArray[np.float64]:
    """The smallest probability of the class for which the radius that is certified with these bounds is true.

    0 where nothing is certified. Any certificate needs more than 1/2.
    """
    if claims_its_bound(plan):
        return lower
    values, where = np.unique(plan.certified_radius(lower, None, noise), return_inverse=True)
    radii = values[~np.isnan(values)]
    if plan.radii is None:
        needed = np.minimum(np.asarray(noise.probability(radii), float) + noise.drawing_error, 1.0)
    else:  # a plan that decides radii states more: that the true radius is above them
        needed = np.array([noise.needed_probability(radius) for radius in radii.tolist()])
    nothing = np.zeros(len(values) - len(radii))
    return np.concatenate([np.maximum(needed, np.nextafter(0.5, 1)), nothing])[where].reshape(np.shape(lower))
