"""What others read about a run: a model card, and rows for the leaderboard of Li, Xie and Li (SoK, 2023).

The leaderboard is the file `_data/board.yml` of github.com/sokcertifiedrobustness/sokcertifiedrobustness.github.io. It
is a list of settings (data set, norm, radius), each with records of papers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal
from importlib.resources import files
from typing import Any

from smoothcert.errors import InvalidInput, setting
from smoothcert.plans.coverage import caveat
from smoothcert.runs.results import Results, check_finished, usual_radii

_NORMS = {
    "l0": r"\\(\\ell_0\\) of values",
    "l0 of pixels": r"\\(\\ell_0\\) of pixels",
    "l1": r"\\(\\ell_1\\)",
    "l2": r"\\(\\ell_2\\)",
    "linf": r"\\(\\ell_\\infty\\)",
}
_DATA_SETS = {"cifar10": "CIFAR-10", "imagenet": "ImageNet", "mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}


def to_sok(results: Results, radii: Sequence[float] | None = None) -> bytes:
    """Write one setting with one record per radius, in the format of the leaderboard's file.

    A run must be finished: inputs that finish first may be easier than the others.
    """
    norm = _check_reportable(results)
    if radii is None:
        radii = [radius for radius in usual_radii([results]) if radius > 0]
    if not radii or min(radii) <= 0:
        raise InvalidInput(
            f"a row of the leaderboard needs a radius above 0: give radii, as in {setting('radii', [0.25, 0.5])}"
        )
    data = "" if results.manifest is None else results.manifest.data.partition(":")[0]
    if not (results.in_unit_interval or norm.startswith("l0")):
        where = f"lie in {results.other_range}" if results.other_range else "are not recorded"
        raise InvalidInput(
            f"the leaderboard has radii for inputs in [0, 1], but the values of the inputs of {results.name} {where}: "
            "certify inputs in [0, 1]"
        )
    shown = results.certified_accuracy(radii).tolist()
    rows = list(zip(map(_plain, radii), shown, strict=True))
    return _filled("board.yml", results, rows, data=_DATA_SETS.get(data, data), norm=_NORMS.get(norm, norm))


def to_card(results: Results, radii: Sequence[float] | None = None) -> bytes:
    """Fill the template `card.md`. Without radii, certified accuracy is shown at those of a table."""
    _check_reportable(results)
    radii = radii or usual_radii([results])
    band = results.certified_accuracy_band(radii)
    rows = zip(radii, results.certified_accuracy(radii).tolist(), *(end.tolist() for end in band), strict=True)
    return _filled("card.md", results, list(rows))


def _filled(template: str, results: Results, rows: list[Any], **values: str) -> bytes:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    environment.filters |= {"quoted": json.dumps, "percent": _percent, "caveat": caveat}
    text = files(__package__).joinpath(template).read_text(encoding="utf-8")
    return environment.from_string(text).render(r=results, rows=rows, **values).encode()


def _check_reportable(results: Results) -> str:
    """The norm of a run that others may read about: it knows noise and plan, it is finished, and it has labels."""
    if results.noise is None or results.plan is None:
        raise InvalidInput(f"{results.name} does not contain its noise and plan: export a run, or an export of a run")
    check_finished(results)
    return results.noise.norm


def _plain(radius: float) -> str:
    """A radius with all of its digits: rounding could make it larger."""
    return str(float(radius)).removesuffix(".0")


def _percent(share: float, digits: int = 2) -> str:
    """A share in percent, rounded down."""
    return str((100 * Decimal(repr(share))).quantize(Decimal(10) ** -digits, ROUND_FLOOR))
