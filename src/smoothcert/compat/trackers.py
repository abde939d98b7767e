"""Report a run to experiment trackers: TensorBoard, Weights & Biases and MLflow.

Each class needs the extra of its name. To support another tracker, write another subclass of
`Tracker`.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from smoothcert.errors import InvalidInput, needs
from smoothcert.runs.progress import Tracker
from smoothcert.runs.run import Run


class TensorBoard(Tracker):
    """Writes figures of a run for TensorBoard.

    Args:
        folder: The log directory for TensorBoard.
        every: Seconds between reports.
    """

    def __init__(self, folder: str | Path, *, every: float = 10.0) -> None:
        super().__init__(every=every)
        with needs("tensorboard", what="TensorBoard"):
            from torch.utils.tensorboard import SummaryWriter
        self._writer: Any = SummaryWriter(str(folder))

    def open(self, settings: dict[str, Any]) -> None:
        rows = "\n".join(f"| {name} | {value} |" for name, value in settings.items())
        self._writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}")

    def log(self, figures: dict[str, float], *, step: int) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.flush()

    def finish(self) -> None:
        self._writer.close()


class WandB(Tracker):
    """Reports figures of a run to the active run of Weights & Biases, or to a new one.

    Args:
        every: Seconds between reports.
        **settings: Arguments for `wandb.init`, such as `project` and `name`.
    """

    def __init__(self, *, every: float = 10.0, **settings: Any) -> None:
        super().__init__(every=every)
        with needs("wandb", what="WandB"):
            import wandb
        self._wandb: Any = wandb
        self._settings = settings

    def open(self, settings: dict[str, Any]) -> None:
        self._run = self._wandb.run
        self._is_new = self._run is None
        if self._is_new:
            self._run = self._wandb.init(config=settings, **self._settings)

    def log(self, figures: dict[str, float], *, step: int) -> None:
        self._run.log(figures | {"certified": step})

    def finish(self) -> None:
        if self._is_new:
            self._run.finish()


class MLflow(Tracker):
    """Reports figures and the page of a run to the active run of MLflow, or to a new one.

    MLflow keeps them where its tracking address says (`MLFLOW_TRACKING_URI`): in a database
    (`sqlite:///runs.db`), on a server (`http://...`), or in a folder (`file:...`).

    Args:
        experiment: The experiment of a new run. Default: MLflow's.
        name: The name of a new run. Default: MLflow's choice.
        every: Seconds between reports.
    """

    def __init__(
        self, experiment: str | None = None, *, name: str | None = None, every: float = 10.0
    ) -> None:
        super().__init__(every=every)
        with needs("mlflow", what="MLflow"):
            import mlflow
        self._mlflow: Any = mlflow
        self._experiment = experiment
        self._name = name

    def open(self, settings: dict[str, Any]) -> None:
        self._is_new = self._mlflow.active_run() is None
        if self._is_new:
            if self._experiment is not None:
                self._mlflow.set_experiment(self._experiment)
            self._mlflow.start_run(run_name=self._name)
        self._mlflow.log_params(settings)

    def log(self, figures: dict[str, float], *, step: int) -> None:
        self._mlflow.log_metrics(figures, step=step)

    def report(self, run: Run) -> None:
        from smoothcert.report import write_report

        with TemporaryDirectory() as folder:
            page = write_report(run, Path(folder) / "report.html")
            self._mlflow.log_artifact(str(page))

    def finish(self) -> None:
        if self._is_new:
            self._mlflow.end_run()


def tracker_named(text: str) -> Tracker:
    """Make a tracker from a text."""
    name, _, where = text.partition(":")
    if name == "tensorboard" and where:
        return TensorBoard(where)
    if name == "wandb":
        return WandB(project=where or None)
    if name == "mlflow":
        return MLflow(where or None)
    raise InvalidInput(
        "unknown-tracker",
        "unknown tracker {text!r}: give tensorboard:DIR, wandb:PROJECT or mlflow:EXPERIMENT",
        text=text,
    )
