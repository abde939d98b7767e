"""The whole public interface, for type checkers and for `__init__.py`.

Plans and noises are listed in their own packages.
"""

from smoothcert._version import __version__ as __version__
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
from smoothcert.noises import *  # noqa: F403
from smoothcert.plans import *  # noqa: F403
from smoothcert.report import write_report as write_report
from smoothcert.report.explained import Explained as Explained
from smoothcert.report.figures import plot as plot
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
from smoothcert.statistics.sample_map import SampleMap as SampleMap
from smoothcert.tasks.ask import ask as ask
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
from smoothcert.tasks.smoothed import Smoothed as Smoothed
from smoothcert.tasks.survey import Forecast as Forecast
from smoothcert.training import train as train
