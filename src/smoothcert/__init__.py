"""Certified robustness by randomized smoothing, at a fraction of the samples.

The names below are the whole public interface. Each is imported when it is first used, so that `import smoothcert`
costs nothing and the statistics never load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from smoothcert._version import __version__

if TYPE_CHECKING:
    from smoothcert.compat.trackers import MLflow as MLflow
    from smoothcert.compat.trackers import TensorBoard as TensorBoard
    from smoothcert.compat.trackers import WandB as WandB
    from smoothcert.data import load_dataset as load_dataset
    from smoothcert.errors import InvalidInput as InvalidInput
    from smoothcert.errors import MissingExtra as MissingExtra
    from smoothcert.errors import SmoothcertError as SmoothcertError
    from smoothcert.models import load_classifier as load_classifier
    from smoothcert.models.denoisers import Denoiser as Denoiser
    from smoothcert.models.denoisers import load_denoiser as load_denoiser
    from smoothcert.noises import Ablation as Ablation
    from smoothcert.noises import Additive as Additive
    from smoothcert.noises import Bands as Bands
    from smoothcert.noises import Blocks as Blocks
    from smoothcert.noises import Brightness as Brightness
    from smoothcert.noises import Discrete as Discrete
    from smoothcert.noises import Gaussian as Gaussian
    from smoothcert.noises import GridGaussian as GridGaussian
    from smoothcert.noises import Laplace as Laplace
    from smoothcert.noises import Noise as Noise
    from smoothcert.noises import Splitting as Splitting
    from smoothcert.noises import Translation as Translation
    from smoothcert.noises import Uniform as Uniform
    from smoothcert.plans import AtRadii as AtRadii
    from smoothcert.plans import Certificate as Certificate
    from smoothcert.plans import Combined as Combined
    from smoothcert.plans import Exact as Exact
    from smoothcert.plans import Fixed as Fixed
    from smoothcert.plans import InputSpecific as InputSpecific
    from smoothcert.plans import Look as Look
    from smoothcert.plans import Plan as Plan
    from smoothcert.plans import Price as Price
    from smoothcert.plans import Proof as Proof
    from smoothcert.plans import State as State
    from smoothcert.plans.coverage import Coverage as Coverage
    from smoothcert.plans.coverage import exact_coverage as exact_coverage
    from smoothcert.report import write_report as write_report
    from smoothcert.report.explained import Explained as Explained
    from smoothcert.report.plot import plot as plot
    from smoothcert.runs.attacks import Attacks as Attacks
    from smoothcert.runs.attacks import read_attacks as read_attacks
    from smoothcert.runs.comparison import Comparison as Comparison
    from smoothcert.runs.comparison import Difference as Difference
    from smoothcert.runs.formats import read_results as read_results
    from smoothcert.runs.formats import write_results as write_results
    from smoothcert.runs.merge import merge as merge
    from smoothcert.runs.progress import Progress as Progress
    from smoothcert.runs.progress import Tracker as Tracker
    from smoothcert.runs.recommendation import Recommendation as Recommendation
    from smoothcert.runs.recommendation import recommend as recommend
    from smoothcert.runs.results import Results as Results
    from smoothcert.runs.run import Run as Run
    from smoothcert.runs.run import open_run as open_run
    from smoothcert.runs.table import Table as Table
    from smoothcert.runs.table import table as table
    from smoothcert.smoothed import Smoothed as Smoothed
    from smoothcert.statistics.sample_map import SampleMap as SampleMap
    from smoothcert.tasks.attack import attack as attack
    from smoothcert.tasks.audit import audit as audit
    from smoothcert.tasks.certify import certify as certify
    from smoothcert.tasks.certify import forecast as forecast
    from smoothcert.tasks.compare import compare as compare
    from smoothcert.tasks.explain import explain as explain
    from smoothcert.tasks.gate import Gate as Gate
    from smoothcert.tasks.gate import Rule as Rule
    from smoothcert.tasks.gate import gate as gate
    from smoothcert.tasks.metric import CertifiedAccuracy as CertifiedAccuracy
    from smoothcert.tasks.predict import Prediction as Prediction
    from smoothcert.tasks.probe import Level as Level
    from smoothcert.tasks.probe import Probe as Probe
    from smoothcert.tasks.probe import probe as probe
    from smoothcert.tasks.survey import Forecast as Forecast
    from smoothcert.training import train as train

_ROOMS = {
    "compat.trackers": "MLflow TensorBoard WandB",
    "data": "load_dataset",
    "errors": "InvalidInput MissingExtra SmoothcertError",
    "models": "load_classifier",
    "models.denoisers": "Denoiser load_denoiser",
    "noises": "Ablation Additive Bands Blocks Brightness Discrete Gaussian GridGaussian Laplace Noise Splitting "
    "Translation Uniform",
    "plans": "AtRadii Certificate Combined Exact Fixed InputSpecific Look Plan Price Proof State",
    "plans.coverage": "Coverage exact_coverage",
    "report": "write_report",
    "report.explained": "Explained",
    "report.plot": "plot",
    "runs.attacks": "Attacks read_attacks",
    "runs.comparison": "Comparison Difference",
    "runs.formats": "read_results write_results",
    "runs.merge": "merge",
    "runs.progress": "Progress Tracker",
    "runs.recommendation": "Recommendation recommend",
    "runs.results": "Results",
    "runs.run": "open_run Run",
    "runs.table": "Table table",
    "smoothed": "Smoothed",
    "statistics.sample_map": "SampleMap",
    "tasks.attack": "attack",
    "tasks.audit": "audit",
    "tasks.certify": "certify forecast",
    "tasks.compare": "compare",
    "tasks.explain": "explain",
    "tasks.gate": "Gate gate Rule",
    "tasks.metric": "CertifiedAccuracy",
    "tasks.predict": "Prediction",
    "tasks.probe": "Level Probe probe",
    "tasks.survey": "Forecast",
    "training": "train",
}
"""The public names by the room that defines them."""
_HOME = {name: room for room, names in _ROOMS.items() for name in names.split()}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
