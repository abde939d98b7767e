"""Random transformations with closed forms: brightness, contrast, circular shifts and blur.

Li et al. (2021) call a transformation resolvable if two of them in a row are one whose parameters
follow from theirs. Then a random parameter does for a changed parameter what noise does for a
changed input. Each class states its law of composition, from which its radius follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import erfc, ndtr, ndtri

from smoothcert import _check
from smoothcert.errors import InvalidInput
from smoothcert.noises.base import MARGIN, Noise, Numbers, OwnDraw, Shape, bisect_each, down
from smoothcert.noises.gaussian import GaussianRadius
from smoothcert.noises.l1 import LogarithmicRadius
from smoothcert.noises.rounded_normal import thresholds

_UNIFORM_ERROR = 2.0**-53
"""float64 holds this many bits of the uniform number from which a normal one is computed."""


class OfPictures(OwnDraw):
    """Base of transformations that move or mix pixels."""

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) < 2:
            raise InvalidInput(
                "not-images",
                "{noise} is for images, but the inputs have the shape {shape}",
                noise=self,
                shape=shape,
            )
        return shape


@dataclass(frozen=True)
class Brightness(OwnDraw, GaussianRadius):
    """Add one normal number to all values, without clipping: R = sigma * Phi^-1(p) of intensity.

    Two numbers in a row add up. So no number of absolute value below R that is added to all values
    changes the answer.

    Args:
        sigma: The standard deviation, in the units of the inputs.
    """

    norm: ClassVar[str] = "brightness"
    drawing_error = _UNIFORM_ERROR

    def certified_change(self, limit: str) -> str:
        change = "change of all values by the same number, without clipping,"
        return f"{change} that is smaller than {limit}"


@dataclass(frozen=True)
class Contrast(OwnDraw, GaussianRadius):
    """Multiply all values by e^k with a normal k, without clipping: R = sigma * Phi^-1(p) of k.

    Two factors in a row are e^(k + k'). So no factor between e^-R and e^R changes the answer.

    Args:
        sigma: The standard deviation of k, the logarithm of the factor.
    """

    norm: ClassVar[str] = "log contrast"
    deviation = 0.0
    drawing_error = _UNIFORM_ERROR

    def certified_change(self, limit: str) -> str:
        factor = f"a factor between e^-{limit} and e^{limit}"
        return f"multiplication of all values by {factor}, without clipping,"


_HALF_NORMAL_MEDIAN = float(ndtri(0.75))
_HALVINGS = 54
"""Steps of a bisection that leave the relative error of a float."""


@dataclass(frozen=True)
class ContrastBrightness(OwnDraw, Noise):
    """Turn x into e^K (x + B) with independent normal numbers K and B, without clipping.

    The radius is the largest R at which no e^k (x + b) with |k| < R and |b| < R alters the answer.

    Such a change followed by the noise is e^(k + K) (x + b + e^-k B): the change moves the mean of
    both parameters, and also multiplies the deviation of the second one by c = e^-k. Let a class
    have a probability of at least p. After the move alone it has at least
    p' = Phi(Phi^-1(p) - sqrt(k^2 + b^2) / sigma). The worst set of probability p' for the other
    deviation is an interval around the mean if c > 1, and all but an interval if c < 1. With the
    median m of |Z|, it keeps more than 1/2 if p' > 2 Phi(m e^|k|) - 1 or p' > 2 - 2 Phi(m e^-|k|),
    respectively. The first is the larger one, because the density of log |Z| has one peak, to the
    right of its median. So R solves

        Phi^-1(p) = sqrt(2) R / sigma + Phi^-1(2 Phi(m e^R) - 1).

    Args:
        sigma: The standard deviation of K and of B.

    >>> float(ContrastBrightness(0.3).radius(0.9045))
    0.2231...
    """

    sigma: float
    norm: ClassVar[str] = "log contrast and brightness"
    drawing_error = 2 * _UNIFORM_ERROR

    def __post_init__(self) -> None:
        _check.fields(self, _check.between, "sigma", low=0)

    @property
    def deviation(self) -> float:
        return self.sigma

    def radius(self, p: ArrayLike) -> Numbers:
        z = np.asarray(ndtri(_check.probabilities("p", p)))
        high = np.where(np.isfinite(z), np.maximum(z, 0), 0) * self.sigma / np.sqrt(2)
        low = np.zeros_like(z)
        low = bisect_each(lambda r: self._score(r) <= z, low, high, halvings=_HALVINGS)
        proved_radius = np.where(np.isinf(z), np.inf, down(low) - MARGIN)
        return np.where(z > 0, proved_radius, np.minimum(z, -MARGIN))[()]

    def probability(self, radius: ArrayLike) -> Numbers:
        return ndtr(self._score(np.asarray(radius, float)))[()]

    def certified_change(self, limit: str) -> str:
        change = "change of all values x to e^k (x + b), without clipping,"
        return f"{change} with k and b between -{limit} and {limit},"

    def _score(self, radius: Numbers) -> Numbers:
        """Phi^-1 of the probability that this radius needs."""
        with np.errstate(over="ignore"):
            # 1 - (2 Phi(x) - 1) keeps the relative accuracy next to 0.
            rest = erfc(_HALF_NORMAL_MEDIAN * np.exp(radius) / np.sqrt(2))
        return np.sqrt(2) * radius / self.sigma - ndtri(rest)


@dataclass(frozen=True)
class Translation(OfPictures, GaussianRadius):
    """Shift images circularly by two rounded normal numbers: R = sigma * Phi^-1(p) in pixels.

    A shift by whole pixels followed by another one is the shift by their sum, and rounding commutes
    with adding whole numbers. So no circular shift by whole pixels of a Euclidean length below R
    changes the answer.

    Args:
        sigma: The standard deviation of the shift along each axis, in pixels.
    """

    norm: ClassVar[str] = "l2 of the shift in pixels"
    deviation = 0.0

    @property
    def drawing_error(self) -> float:
        return 2 * thresholds(self.sigma).error

    def certified_change(self, limit: str) -> str:
        return f"circular shift by whole pixels that is shorter than {limit} pixels"


@dataclass(frozen=True)
class Blur(OfPictures, LogarithmicRadius):
    """Blur images with a random squared radius a of mean `scale`: R = -scale * ln(2 (1 - p)).

    The blur is the heat equation on the pixels for a time a / 2, with edges that reflect: along
    each axis of N pixels, the cosine coefficient k is multiplied by exp(-a (1 - cos(pi k / N))).
    Away from the edges this is the convolution with the discrete Gaussian kernel of variance a
    (Lindeberg 1990). It makes squared radii add up exactly, which a sampled or cut kernel does not.

    The density of a is exp(-a / s) / s. A blur r before it multiplies the probability of a set of
    squared radii by at most g = e^(r / s). So a class with a probability of at least p keeps
    1 - g (1 - p), and another one with at most q has at most g q: R = -s ln(1 - p + q). Blur cannot
    be undone, so the certificate is about pictures that are blurred more, not about sharper ones.

    Args:
        scale: The mean of the squared radius, in square pixels.

    >>> round(float(Blur(1.0).radius(0.9)), 6)
    1.609438
    """

    norm: ClassVar[str] = "squared radius of added blur"
    deviation = 0.0
    drawing_error = 2.0**-50  # 53 bits of a uniform number, and the rounding of its logarithm

    def radius_between(self, lower: ArrayLike, upper: ArrayLike) -> Numbers:
        a = _check.probabilities("p", lower)
        b = _check.probabilities("p", upper)
        with np.errstate(divide="ignore"):
            # Near 1/2, log1p keeps the relative accuracy; near 1, 1 - a is exact.
            log = np.where(a - b < 0.5, np.log1p(b - a), np.log(1 - a + b))
        return down(-self.scale * log)

    def trade_off(self, radius: float, b: ArrayLike) -> tuple[Numbers, Numbers]:
        """h(b) = min(b + 1 - e^(-r / s), 1)."""
        h = _check.probabilities("b", b) - np.expm1(-radius / self.scale)
        return np.minimum(h, 1.0), np.where(h < 1, 1.0, 0.0)[()]

    def certified_change(self, limit: str) -> str:
        return f"further blur with a squared radius smaller than {limit} square pixels"
