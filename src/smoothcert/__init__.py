"""Certified robustness by randomized smoothing, at a fraction of the samples.

The names below are the whole public interface. Each is imported when it is first used, so that `import smoothcert`
costs nothing and the statistics never load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from smoothcert._version import __version__

if TYPE_CHECKING:
    from smoothcert.certificate import Certificate as Certificate
    from smoothcert.certificate import conclude as conclude
    from smoothcert.certifying import certify as certify
    from smoothcert.coverage import Coverage as Coverage
    from smoothcert.coverage import exact_coverage as exact_coverage
    from smoothcert.errors import InvalidInput as InvalidInput
    from smoothcert.errors import MissingExtra as MissingExtra
    from smoothcert.errors import SmoothcertError as SmoothcertError
    from smoothcert.noise import Gaussian as Gaussian
    from smoothcert.noise import Noise as Noise
    from smoothcert.plans import Fixed as Fixed
    from smoothcert.plans import InputSpecific as InputSpecific
    from smoothcert.plans import Look as Look
    from smoothcert.plans import Plan as Plan
    from smoothcert.plans import Together as Together
    from smoothcert.progress import Progress as Progress
    from smoothcert.report import write_report as write_report
    from smoothcert.runs.formats import read_results as read_results
    from smoothcert.runs.formats import write_results as write_results
    from smoothcert.runs.results import Results as Results
    from smoothcert.runs.run import Run as Run
    from smoothcert.runs.run import open_run as open_run
    from smoothcert.sample_map import SampleMap as SampleMap
    from smoothcert.smoothed import Prediction as Prediction
    from smoothcert.smoothed import Smoothed as Smoothed
    from smoothcert.table import compare as compare

_HOME = {
    "Certificate": "certificate",
    "conclude": "certificate",
    "certify": "certifying",
    "Coverage": "coverage",
    "exact_coverage": "coverage",
    "InvalidInput": "errors",
    "MissingExtra": "errors",
    "SmoothcertError": "errors",
    "Gaussian": "noise",
    "Noise": "noise",
    "Fixed": "plans",
    "InputSpecific": "plans",
    "Look": "plans",
    "Plan": "plans",
    "Together": "plans",
    "write_report": "report",
    "read_results": "runs.formats",
    "write_results": "runs.formats",
    "Results": "runs.results",
    "Progress": "progress",
    "Run": "runs.run",
    "open_run": "runs.run",
    "SampleMap": "sample_map",
    "compare": "table",
    "Prediction": "smoothed",
    "Smoothed": "smoothed",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
