"""Certified robustness as an assertion, for tests of a model with pytest."""

from __future__ import annotations

from smoothcert import _check
from smoothcert.errors import InvalidInput, number_of
from smoothcert.runs.formats import Source, read_results

_MOST_LISTED = 10


def assert_certified(results: Source, *, radius: float, at_least: float = 1.0) -> None:
    """Assert that enough inputs are certified at a radius, with the right class.

    It is about the given inputs. For other inputs of this kind, `gate` decides with a confidence.

    Args:
        results: The results of `certify`, with labels; or the folder of a run.
        radius: The radius.
        at_least: The least share of the inputs, from 0 to 1.

    Raises:
        AssertionError: Fewer inputs are certified. The message names some that are not.

    >>> import smoothcert as sc
    >>> smoothed = sc.Smoothed("fashion-cnn", sigma=0.25, device="cpu")
    >>> results = smoothed.certify(sc.load_dataset("fashion-mnist"), limit=5, radii=[0.25])
    >>> assert_certified(results, radius=0.25, at_least=0.8)
    """
    results = read_results(results)
    if not results.labelled:
        raise InvalidInput("no-labels", "{name} has no labels: give them", name=results.name)
    [radius] = _check.radii(radius)
    _check.probabilities("at_least", at_least)
    decided = results.decided_radii
    if decided is not None and radius not in decided:
        raise InvalidInput(
            "undecided-radius",
            "{name} decides only the radii {decided}, and nothing at {radius:g}",
            name=results.name,
            decided=", ".join(f"{r:g}" for r in decided),
            radius=radius,
        )
    is_certified = results.certified([radius])[:, 0]
    share = is_certified.mean()
    if share >= at_least:
        return
    others = results.id[~is_certified].tolist()
    listed = ", ".join(map(str, others[:_MOST_LISTED]))
    more = ", ..." if len(others) > _MOST_LISTED else ""
    raise AssertionError(
        f"{share:.1%} of {number_of(len(results), 'input')} are certified at radius {radius:g}, "
        f"expected at least {at_least:.1%}; not certified: {listed}{more}"
    )
