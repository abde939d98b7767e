import sys
from types import SimpleNamespace

import pytest
from tests.refusals import refused

import smoothcert as sc
from smoothcert.compat.trackers import tracker_named
from smoothcert.runs.progress import Display, Several, choose_progress

DATA = [([0.2, 0.0], 0), ([0.9, 0.0], 1), ([0.8, 0.0], 0)]


def certify(out, progress):
    return sc.certify(
        lambda x: (x[:, 0] > 0.5).long(),
        DATA,
        noise=sc.Gaussian(0.5),
        plan=sc.Fixed(200),
        classes=2,
        device="cpu",
        batch=100,
        out=out,
        progress=progress,
    )


class Recorder(sc.Tracker):
    def __init__(self):
        super().__init__(every=0)
        self.settings, self.logged, self.finished = None, [], False

    def open(self, settings):
        self.settings = settings

    def log(self, figures, *, step):
        self.logged.append((step, figures))

    def finish(self):
        self.finished = True


def test_a_tracker_gets_settings_figures_and_the_end_beside_the_usual_display(tmp_path, capsys):
    recorder = Recorder()
    run = certify(tmp_path, recorder)
    assert "3 inputs" in capsys.readouterr().err
    assert recorder.settings["noise"] == "Gaussian(sigma=0.5)"
    assert [step for step, _ in recorder.logged] == [1, 2, 3, 3]
    last = recorder.logged[-1][1]
    assert (last["acr"], last["average_samples"]) == (run.acr, run.average_samples)
    assert last["certified_accuracy/0"] == run.certified_accuracy([0])[0]
    assert recorder.finished


@pytest.mark.parametrize("method", ["log", "report", "finish", "close"])
@pytest.mark.filterwarnings("default:Broken")
def test_a_tracker_that_raises_never_stops_the_run(tmp_path, method):
    class Broken(Recorder):
        pass

    def fail(self, *arguments, **more):
        raise ConnectionError("no network\nfor now")

    setattr(Broken, method, fail)
    broken, other = Broken(), Recorder()
    with pytest.warns(
        UserWarning,
        match="Broken gets no more figures, because it raised ConnectionError: no network;",
    ) as told:
        run = certify(tmp_path, [broken, other])
    assert len(told) == 1
    assert run.complete
    assert broken.failed
    assert other.finished
    assert not other.failed


def test_a_tracker_that_cannot_be_opened_is_refused_before_the_first_sample(tmp_path):
    class Unreachable(Recorder):
        def open(self, settings):
            raise ConnectionError("no route to host")

    with refused("tracker-not-opened", tracker="Unreachable", why="no route to host"):
        certify(tmp_path, Unreachable())
    assert certify(tmp_path, sc.Progress()).complete


def test_a_display_that_is_asked_for_replaces_the_usual_one(tmp_path, capsys):
    certify(tmp_path, [sc.Progress(), Recorder()])
    assert capsys.readouterr().err == ""
    assert isinstance(choose_progress(None), Display)
    assert isinstance(choose_progress([]), Display)
    assert isinstance(choose_progress(Recorder()), Several)
    silent = sc.Progress()
    assert choose_progress([silent]) is silent
    with refused("not-a-progress"):
        choose_progress(["tensorboard"])


def test_weights_and_biases_gets_figures_in_a_run_of_its_own_or_in_the_active_one(
    tmp_path, monkeypatch
):
    made = []

    class Run:
        def __init__(self, **settings):
            self.settings, self.logged, self.finished = settings, [], False
            made.append(self)

        def log(self, figures):
            self.logged.append(figures)

        def finish(self):
            self.finished = True

    wandb = SimpleNamespace(run=None, init=Run)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    certify(tmp_path / "a", sc.WandB(project="robust"))
    [own] = made
    assert own.settings["project"] == "robust"
    assert own.settings["config"]["plan"].startswith("fixed")
    assert own.logged[-1]["certified"] == 3
    assert own.finished
    wandb.run = Run()
    certify(tmp_path / "b", sc.WandB())
    assert len(made) == 2
    assert made[1].logged
    assert not made[1].finished


def test_mlflow_gets_parameters_and_metrics(tmp_path, monkeypatch):
    calls = []
    names = (
        *("set_experiment", "start_run", "log_params"),
        *("log_metrics", "log_artifact", "end_run"),
    )

    def recorded(name):
        return lambda *arguments, **more: calls.append((name, arguments, more))

    mlflow = SimpleNamespace(active_run=lambda: None, **{name: recorded(name) for name in names})
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    certify(tmp_path, sc.MLflow("robust", name="first"))
    assert [name for name, *_ in calls] == [
        "set_experiment",
        "start_run",
        "log_params",
        "log_metrics",
        "log_artifact",
        "end_run",
    ]
    assert calls[0][1] == ("robust",)
    assert calls[1][2] == {"run_name": "first"}
    assert calls[3][1][0]["inputs"] == 3
    assert calls[3][2] == {"step": 3}


def test_tensorboard_reads_what_was_written(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = certify(tmp_path / "run", sc.TensorBoard(tmp_path / "board", every=0))
    events = EventAccumulator(str(tmp_path / "board"))
    events.Reload()
    acr = events.Scalars("acr")[-1]
    assert (acr.step, acr.value) == (3, pytest.approx(run.acr))


@pytest.mark.parametrize(
    ("text", "module", "extra"),
    [
        ("tensorboard:runs/board", "torch.utils.tensorboard", "tensorboard"),
        ("wandb:robust", "wandb", "wandb"),
        ("mlflow:robust", "mlflow", "mlflow"),
    ],
)
def test_a_tracker_that_is_not_installed_names_its_extra_at_once(monkeypatch, text, module, extra):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(sc.MissingExtra, match=rf"pip install 'smoothcert\[{extra}\]'"):
        tracker_named(text)
