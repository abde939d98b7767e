"""How few samples any plan needs for an average radius: a bound from linear programming.

A plan stops when it likes, and proves a lower bound L on p that is too large with probability alpha at most: for every
threshold t, P_t(L >= t) <= alpha. Take any price c per sample and any weights u_t >= 0. For every such plan,

    E[right * radius(L)] - c E[samples] <= max over all plans, valid or not, of
        E[right * radius(L) - sum of u_t dP_t/dP over t <= L] - c E[samples]  +  alpha * sum of u_t,

where P is the distribution of votes if p is drawn from the inputs. The maximum is a problem of optimal stopping, solved
backwards over looks and misses. So ACR <= c * samples + the right-hand side, for all plans.
Good weights make this sharp.

The plan is allowed to know how p and right answers are distributed over the inputs, and needs no pilot. Radii are
rounded up to the next threshold. The bound is about plans that look at sizes which grow by a fifth, and that give up an
input with more misses than `most`: what such an input could still be worth is not counted. Values of p are grouped. So
only two digits are reported, rounded down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.signal import fftconvolve
from scipy.special import ndtr, ndtri, xlog1py, xlogy
from scipy.stats import binom

from benchmarks import results
from benchmarks.budget import log_population
from benchmarks.cifar10 import CEILING
from benchmarks.experiments import Inputs
from smoothcert import Gaussian
from smoothcert.statistics.group_sequential import growing_looks
from smoothcert.tasks.replay import Population

_STEP = 0.00625
"""The distance of thresholds, as quantiles of the normal distribution."""
_GROUP = 0.05
"""Values of p are grouped this far apart, as quantiles."""
_LARGEST = 4.0
_ROUNDS = 16
_PRICES = np.geomspace(2e-6, 8e-6, 5)  # per unit of sigma


@dataclass
class _Stopping:
    """Optimal stopping for inputs with these p, each with its weight and its share of right answers."""

    p: Any
    weight: Any
    right: Any
    sigma: float
    samples: int
    alpha: float

    def __post_init__(self) -> None:
        self.looks = growing_looks(20, 1.2, self.samples)
        quantiles = np.arange(0, _LARGEST, _STEP)
        self.thresholds, self.gain = ndtr(quantiles), np.full(len(quantiles), _STEP * self.sigma)
        # More misses than this mean a p of which nobody draws so many samples.
        self.most = [int(min(0.55 * n, 5_000 if n < 12_000 else 1_500)) for n in self.looks]
        self.posterior, self.right_given, self.ratio = [], [], []
        for n, most in zip(self.looks, self.most, strict=True):
            misses = np.arange(most + 1)
            with np.errstate(divide="ignore"):
                log = (
                    np.log(self.weight)[:, None]
                    + xlogy(n - misses, self.p[:, None])
                    + xlog1py(misses, -self.p[:, None])
                )
            top = log.max(axis=0)
            all_ = top + np.log(np.exp(log - top).sum(axis=0))
            self.posterior.append(np.exp(log - all_))
            self.right_given.append(self.right @ self.posterior[-1])
            null = xlogy(n - misses, self.thresholds[:, None]) + xlog1py(
                misses, -self.thresholds[:, None]
            )
            self.ratio.append(np.exp(np.minimum(null - all_, 600)))

    def _drawn(self, look: int, p: Any) -> Any:
        more = np.diff((0, *self.looks))[look]
        return binom.pmf(np.arange(min(more, self.most[look]) + 1), more, 1 - p[:, None])

    def bound(self, price: float, weights: Any) -> tuple[float, Any]:
        """The right-hand side, and how much of alpha the best plan spends at each threshold."""
        last, value, proved, goes_on = len(self.looks) - 1, np.zeros(0), [], []
        for look in range(last, -1, -1):
            # A threshold can be proved without a miss only if that is unlikely enough: there is one such path.
            gain = self.gain[:, None] * self.right_given[look] - weights[:, None] * self.ratio[look]
            gain[self.thresholds ** self.looks[look] > self.alpha, 0] = -np.inf
            total = np.vstack([np.zeros(gain.shape[1]), gain]).cumsum(axis=0)
            proved.append(total.argmax(axis=0))
            stop = total.max(axis=0)
            if look == last:
                further = np.full(len(stop), -np.inf)
            else:
                drawn, size = self._drawn(look + 1, self.p), len(stop)
                padded = np.zeros(size + drawn.shape[1])
                padded[: min(len(value), len(padded))] = value[: len(padded)]
                expected = fftconvolve(padded[None], drawn[:, ::-1], axes=1)[
                    :, drawn.shape[1] - 1 :
                ][:, :size]
                further = (self.posterior[look] * expected).sum(axis=0)
                further -= price * (self.looks[look + 1] - self.looks[look])
            goes_on.append(further > stop)
            value = np.maximum(stop, further)
        first = self.weight @ (self._drawn(0, self.p) @ value[: self._drawn(0, self.p).shape[1]])
        spent = self._spent(proved[::-1], goes_on[::-1])
        return float(first) - price * self.looks[0] + self.alpha * weights.sum(), spent

    def _spent(self, proved: list[Any], goes_on: list[Any]) -> Any:
        """The probability that each threshold is proved if p is equal to it."""
        spent, at = np.zeros(len(self.thresholds)), self._drawn(0, self.thresholds)
        index = np.arange(len(self.thresholds))[:, None]
        for look, (reached, further) in enumerate(zip(proved, goes_on, strict=True)):
            size = at.shape[1]
            spent += np.where(~further[:size] & (index < reached[:size]), at, 0).sum(axis=1)
            if not further.any():
                break
            drawn = self._drawn(look + 1, self.thresholds)
            at = fftconvolve(np.where(further[:size], at, 0), drawn, axes=1)[
                :, : self.most[look + 1] + 1
            ]
        return spent


def limits(
    inputs: Inputs, *, logs: list[tuple[str, float, float]], decline: float
) -> dict[str, Any]:
    """The share of the samples of input-specific sampling below which no plan of this class reaches its ACR."""
    measured = {row["log"]: row for row in (results.read("budget-price") or {})["numbers"]["rows"]}
    rows = []
    for name, sigma, alpha in logs:
        goal = measured[name][f"{decline:.2f}"]
        found = _stopping(log_population(inputs, name, sigma, alpha), Gaussian(sigma))
        least = max((goal["acr"] - _sharpest(found, price)) / price for price in sigma * _PRICES)
        limit = math.floor(100 * least / goal["samples"]) / 100
        rows.append({"log": name, "price": goal["price"], "limit": limit})
    return {"rows": rows}


def _stopping(inputs: Population, noise: Gaussian) -> _Stopping:
    p, right = inputs.p[:, 0], inputs.label == 0
    quantiles = np.where(p < 1, np.round(ndtri(np.minimum(p, 1 - 1e-7)) / _GROUP) * _GROUP, np.inf)
    levels, where = np.unique(quantiles, return_inverse=True)
    count = np.bincount(where)
    return _Stopping(
        ndtr(levels), count / len(p), np.bincount(where, right) / count, noise.sigma, CEILING, 0.001
    )


def _sharpest(found: _Stopping, price: float) -> float:
    """The smallest right-hand side, over weights that are raised where more than alpha is spent."""
    weights, best = 20 * found.gain, np.inf
    for number in range(_ROUNDS):
        value, spent = found.bound(price, weights)
        best = min(best, value)
        weights = weights * np.exp(np.clip(spent / found.alpha - 1, -1, 1) / (1 + number) ** 0.6)
    return best
