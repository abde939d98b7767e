import errno
import json
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from tests.pages import render
from tests.refusals import refused
from torch import nn

import smoothcert as sc
from smoothcert.errors import InvalidInput
from smoothcert.models import Classifier
from smoothcert.report.evidence import write_evidence
from smoothcert.runs.comparison import compare_runs
from smoothcert.runs.formats import write_results
from smoothcert.runs.journal import Journal
from smoothcert.runs.progress import Display, Progress
from smoothcert.runs.words import summary
from smoothcert.tasks.audit import audit

RNG = np.random.default_rng(0)
DATA = [(x, int(x[0] > 0.5)) for x in RNG.random((40, 6))]
PLAN = sc.InputSpecific(2000, decline=0.05)


def above_half(x):
    return torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1)


def certify(out, model=above_half, data=DATA, **settings):
    defaults = {
        "noise": sc.Gaussian(0.25),
        "plan": PLAN,
        "device": "cpu",
        "dtype": "float32",
        "batch": 500,
    }
    return sc.certify(model, data, out=out, **(defaults | settings))


def rows(run):
    """Everything in a run except for the time it took."""
    columns = {name: column for name, column in run.columns.items() if name != "seconds"}
    return {name: np.nan_to_num(column, nan=-1).tolist() for name, column in columns.items()}


class Stop(Progress):
    """Ends a run after some certificates."""

    def __init__(self, after, error=KeyboardInterrupt):
        self.left, self.error, self.closed = after, error, False

    def update(self, certificate, status):
        self.left -= 1
        if not self.left:
            raise self.error

    def close(self):
        self.closed = True


def test_a_run_has_a_true_certificate_for_every_input(tmp_path):
    run = certify(tmp_path)
    assert run.id.tolist() == list(range(40))
    distance = np.array([abs(x[0] - 0.5) for x, _ in DATA])
    assert (run.radius <= distance)[~run.abstained].all()
    assert run.correct[~run.abstained].all()
    assert run.complete


def test_figures_of_a_run_are_those_of_its_certificates(tmp_path):
    run = certify(tmp_path)
    certificates = list(run.certificates())
    assert run.acr == pytest.approx(np.mean([c.radius * c.correct for c in certificates]))
    assert run.average_samples == np.mean([c.samples for c in certificates])
    assert run.certified_accuracy([0, 0.2]).tolist() == [
        np.mean([c.correct and c.radius > r for c in certificates]) for r in (0, 0.2)
    ]
    assert "input-specific" in str(sc.table(run))
    assert 0 < run.samples_saved < 1
    assert run.manifest.forwarded >= run.samples.sum()


def test_modules_functions_names_and_classifiers_are_models(tmp_path):
    torch.manual_seed(0)
    network = nn.Linear(6, 3)
    by_module = certify(tmp_path / "module", network, limit=3)
    by_function = certify(tmp_path / "function", lambda x: network(x), limit=3)
    assert rows(by_module) == rows(by_function)
    assert by_module.manifest.weights_hash
    images = certify(tmp_path / "name", "fashion-cnn", "fashion-mnist", weights="none", limit=2)
    assert images.manifest.data == "fashion-mnist"
    labels = certify(tmp_path / "labels", lambda x: (x[:, 0] > 0.5).long(), classes=2)
    assert rows(labels) == rows(certify(tmp_path / "logits"))


def test_ids_skip_and_limit_choose_inputs(tmp_path):
    whole = certify(tmp_path / "all")
    assert certify(tmp_path / "skip", skip=13).id.tolist() == [0, 13, 26, 39]
    some = certify(tmp_path / "ids", ids="30,3-5", limit=3)
    assert some.id.tolist() == [3, 4, 30]
    assert some.complete
    np.testing.assert_array_equal(some.radius, whole.radius[[3, 4, 30]])


def test_an_interrupted_run_resumes_to_the_same_certificates(tmp_path):
    whole = certify(tmp_path / "whole")
    stop = Stop(7)
    with pytest.raises(KeyboardInterrupt):
        certify(tmp_path / "stopped", progress=stop)
    assert stop.closed
    partial = sc.open_run(tmp_path / "stopped")
    assert len(partial) == 7
    assert not partial.complete
    resumed = certify(tmp_path / "stopped", batch="auto")  # it uses the recorded batch size
    assert rows(resumed) == rows(whole)
    assert resumed.manifest.forwarded >= resumed.samples.sum()


def test_a_run_can_be_extended(tmp_path):
    whole = certify(tmp_path / "whole")
    assert len(certify(tmp_path / "grown", limit=5)) == 5
    with refused("other-runtime", batch_there=500):
        certify(tmp_path / "grown", limit=25, batch=400)
    assert sc.open_run(tmp_path / "grown").complete
    with pytest.raises(KeyboardInterrupt):
        certify(tmp_path / "grown", limit=25, progress=Stop(7))
    partial = sc.open_run(tmp_path / "grown")
    assert len(partial) == 12
    assert not partial.complete
    assert not audit(tmp_path / "grown", redraw=0).findings
    assert rows(certify(tmp_path / "grown")) == rows(whole)
    assert certify(tmp_path / "grown").manifest.finished
    assert rows(certify(tmp_path / "grown", limit=5)) == rows(whole)
    with refused("other-configuration", names=["ids.first", "ids.last"]):
        certify(tmp_path / "part", ids="0-4") and certify(tmp_path / "part", ids="4-8")


def test_inputs_before_an_unreadable_one_are_certified_and_it_can_be_left_out(tmp_path):
    class Damaged:
        name, fingerprint, class_names = "damaged", "0", None

        def __len__(self):
            return len(DATA)

        def __getitem__(self, i):
            if i == 30:
                raise sc.InvalidInput("cannot read 30.png")
            return torch.as_tensor(DATA[i][0]).float(), DATA[i][1]

    with refused("unreadable-input", id=30):
        certify(tmp_path, data=Damaged())
    assert sc.open_run(tmp_path).id.tolist() == list(range(30))
    easy = certify(tmp_path, data=Damaged(), ids="0-4,31-39")
    assert (len(easy), easy.asked, easy.complete) == (39, 39, True)
    assert easy.left_out == 1
    audited = audit(tmp_path, redraw=0)
    assert (audited.findings, audited.left_out) == ((), 1)
    case = write_evidence(tmp_path, audited, tmp_path.with_suffix(".html")).read_text()
    card, board = (write_results(easy, format=name, radii=[0.1]) for name in ("card", "sok"))
    other = certify(tmp_path.with_suffix(".other"), data=Damaged(), ids="0-29,31-39")
    notes = " ".join(compare_runs(easy, other, radius=[0.1]).sentences)
    for text in (case, card.decode(), board.decode(), notes, render([easy]), summary(easy)):
        assert "1 input unreadable and left out" in text


@pytest.mark.parametrize("last", [False, True])
def test_only_what_could_not_be_read_is_left_out_and_it_may_come_back(tmp_path, last):
    class Flaky(list):
        broken = True

        def __getitem__(self, index):
            if index == 7 and self.broken:
                raise OSError(errno.EIO, "disk is broken")
            return super().__getitem__(index)

    data, limit = Flaky(DATA), 8 if last else 10
    data.fingerprint = "known"
    with refused("unreadable-input", id=7):
        certify(tmp_path, data=data, limit=limit)
    fewer = certify(tmp_path, data=data, limit=5)
    assert (len(fewer), fewer.asked, fewer.left_out) == (7, limit - 1, 1)
    assert fewer.complete == last  # inputs that can be read are still missing
    grown = certify(tmp_path, data=data, ids="0-6,8-11")
    assert (len(grown), grown.complete, bool(grown.manifest.finished)) == (11, True, True)
    data.broken = False
    whole = certify(tmp_path, data=data, limit=12)
    assert (len(whole), whole.complete, whole.left_out) == (12, True, 0)
    assert len(certify(tmp_path, data=data, ids="0-6")) == 12
    assert not audit(tmp_path, redraw=0).findings


def test_a_finished_run_is_recognised_and_spends_nothing(tmp_path):
    calls = 0

    def counting(x):
        nonlocal calls
        calls += len(x)
        return above_half(x)

    first = certify(tmp_path, counting, classes=2)
    spent = calls
    again = certify(tmp_path, counting, classes=2)
    assert spent > first.samples.sum()
    assert calls - spent <= 8  # for the check that it is the same model
    assert rows(again) == rows(first)
    assert again.total_seconds == first.total_seconds


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ({"noise": sc.Gaussian(0.5)}, ["noise.sigma"]),
        ({"plan": sc.Fixed(2000), "seed": 5}, ["plan.name", "seed"]),
        ({"dtype": "bfloat16"}, ["dtype"]),
        ({"model": nn.Linear(6, 2)}, ["model", "weights_hash"]),
        ({"data": DATA[::-1]}, ["data_hash"]),
    ],
)
def test_another_configuration_in_the_folder_names_what_differs(tmp_path, settings, fields):
    certify(tmp_path)
    with refused("other-configuration", what="run") as caught:
        certify(tmp_path, **settings)
    named = {part.split(" (there")[0].split()[-1] for part in str(caught.value).split(";")[:-1]}
    assert named == set(fields)


def test_code_that_has_changed_around_the_same_weights_is_another_classifier(tmp_path):
    threshold = 0.5

    def model(x):
        return (x.mean(1) > threshold).long()

    certify(tmp_path, model, classes=2)
    threshold = -1
    with refused("other-configuration", names=["what the model answers to the same inputs"]):
        certify(tmp_path, model, classes=2)


@pytest.mark.filterwarnings("ignore:.*values lie in")
def test_a_model_that_changed_where_nobody_looked_is_noticed_before_anything_is_kept(tmp_path):
    """The recorded answers are about the first input. So one input is drawn again when a run is resumed."""
    data = [(np.array([0.5, 10 * i], np.float32), 0) for i in range(12)]
    border = [0.45]

    def model(x):
        moved = torch.where(x[:, 1] > 25, border[0], 0.45)
        return torch.stack([moved - x[:, 0], x[:, 0] - moved], 1)

    certify(tmp_path, model, data, ids=range(4, 8))
    certify(tmp_path, model, data, ids=range(4, 9))
    border[0] = 0.55
    changed = r"input \d got the votes .* before, and now gets .* changed"
    with pytest.raises(InvalidInput, match=changed):
        certify(tmp_path, model, data, ids=range(4, 12))
    assert len(sc.open_run(tmp_path)) == 5


def test_a_model_that_changes_during_a_run_ends_it_with_an_error(tmp_path):
    """A model that adapts to its inputs, or that counts its calls, is no function of its input."""
    calls = 0

    def model(x):
        nonlocal calls
        calls += 1
        return above_half(x) if calls < 60 else above_half(x + 9)

    with refused("other-votes"):
        certify(tmp_path, model, plan=sc.Fixed(2000))
    calls = 0
    with refused("other-configuration", names=["what the model answers to the same inputs"]):
        certify(tmp_path, model, plan=sc.Fixed(2000))


def test_a_model_that_changes_is_noticed_in_memory_as_well():
    calls = 0

    def model(x):
        nonlocal calls
        calls += 1
        return above_half(x) if calls < 60 else above_half(x + 9)

    with refused("other-votes"):
        sc.certify(model, DATA, sigma=0.25, plan=sc.Fixed(2000), device="cpu", batch=500)


@pytest.mark.parametrize("plan", [sc.Fixed(2000), sc.Fixed(2000, known_labels=True)])
def test_a_change_is_noticed_at_the_end_of_the_shortest_run(tmp_path, plan):
    class Drifting(Progress):
        """Moves the border of the model after the last certificate."""

        def update(self, certificate, status):
            border[0] = 0.9

    border = [0.5]

    def model(x):
        return torch.stack([border[0] - x[:, 0], x[:, 0] - border[0]], 1)

    with refused("other-votes"):
        certify(tmp_path, model, ids=[0], plan=plan, progress=Drifting())


def test_a_reduced_format_that_nobody_chose_is_told(tmp_path, capsys):
    """The same network as a function, or as an ONNX graph, runs in float32."""
    network = nn.Linear(6, 2).eval()
    settings = {"dtype": "auto", "plan": sc.Fixed(100), "ids": range(4), "data": DATA}
    module = certify(tmp_path / "module", network, **settings)
    told = f'the model runs in {module.manifest.dtype} (in full precision: dtype="float32")'
    assert (told in capsys.readouterr().err) == (module.manifest.dtype != "float32")
    function = certify(tmp_path / "function", lambda x: network(x), **settings)
    assert function.manifest.dtype == "float32"
    assert "the model runs in" not in capsys.readouterr().err
    other = replace(function, manifest=replace(function.manifest, dtype="float64"))
    notes = compare_runs(function, other, radius=0.1).notes
    assert any("ran in float32" in note and "in float64" in note for note in notes)


def test_labels_beside_a_named_data_set_are_its_labels(tmp_path):
    settings = {"sigma": 0.25, "plan": PLAN, "limit": 2, "device": "cpu", "batch": 500}
    assert sc.certify("fashion-cnn", "fashion-mnist", [3] * 500, **settings).label.tolist() == [
        3,
        3,
    ]


def test_labels_beside_named_images_leave_them_on_their_grid(tmp_path):
    settings = {"sigma": 0.25, "plan": sc.Fixed(100), "limit": 2, "device": "cpu", "joint": True}
    run = sc.certify("fashion-cnn", "fashion-mnist", [3] * 500, out=tmp_path, **settings)
    assert run.noise.short == "grid-gaussian:0.25"
    # What is published about them must not pass for results on the labels of the data set.
    assert run.manifest.data == "fashion-mnist with given labels"
    assert b"fashion-mnist with given labels" in write_results(run, format="card", radii=[0.1])


def test_fewer_inputs_than_a_run_holds_are_told(tmp_path, capsys):
    certify(tmp_path, limit=6)
    assert len(certify(tmp_path, limit=4)) == 6
    assert (
        "also holds 2 inputs that were not asked for; its figures are about all"
        in capsys.readouterr().err
    )


def test_a_run_leaves_the_random_generators_of_the_caller_alone(tmp_path):
    def state():
        return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()  # noqa: NPY002

    before = state()
    audit(certify(tmp_path, limit=3).path, model=above_half, data=DATA)
    assert state() == before


def test_a_reader_sees_a_run_while_it_is_written(tmp_path):
    class Reader(Progress):
        seen = ()

        def update(self, certificate, status):
            self.seen = (*self.seen, len(sc.open_run(tmp_path)))

    reader = Reader()
    certify(tmp_path, progress=reader)
    assert list(reader.seen) == list(range(1, 41))


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    for out in (tmp_path / "file", tmp_path / "file" / "below", "/proc/nowhere"):
        with pytest.raises(
            sc.InvalidInput, match=f"cannot write into {out}: .*; choose another out=DIR"
        ):
            certify(out)


def test_a_folder_that_is_not_named_is_one_sentence():
    with refused("no-folder"):
        certify("")


@pytest.mark.parametrize("damaged", [0, 1, 39])
def test_only_what_is_certified_must_be_readable(tmp_path, damaged):
    class Lazy:
        read = ()

        def __len__(self):
            return len(DATA)

        def __getitem__(self, index):
            self.read = (*self.read, index)
            if index == damaged:
                raise OSError(errno.EIO, "disk is broken")
            return DATA[index]

    data = Lazy()
    chosen = [4, 6]
    run = certify(tmp_path, data=data, ids=chosen)
    assert rows(run) == rows(certify(tmp_path.parent / f"whole{damaged}", ids=chosen))
    assert certify(tmp_path, data=data, ids=[4, 6, 8]).complete


def test_an_error_of_the_users_data_is_not_blamed_on_the_folder(tmp_path):
    class Unreadable(list):
        def __getitem__(self, index):
            if index == 30:
                raise OSError(errno.EIO, "disk is broken")
            return super().__getitem__(index)

    with refused("unreadable-input", id=30):
        certify(tmp_path, data=Unreadable(DATA), ids=[0, 1, 30])


def test_images_of_another_size_than_the_models_are_told(tmp_path):
    model = Classifier(lambda x: above_half(x.flatten(1)), 2, "mine", input_shape=(1, 8, 8))
    with pytest.warns(
        UserWarning,
        match=r"mine was made for inputs of shape \(1, 8, 8\), .* have shape \(1, 2, 3\)",
    ):
        certify(tmp_path, model, [(x.reshape(1, 2, 3), label) for x, label in DATA[:3]])


def test_the_classes_of_a_module_are_counted_on_inputs_in_the_form_that_the_noise_gives_them(
    tmp_path,
):
    module = nn.Sequential(
        nn.Conv2d(2, 3, (2, 3)), nn.Flatten()
    ).eval()  # ablation doubles the channels
    data = [(x.reshape(1, 2, 3), 0) for x, _ in DATA[:3]]
    run = sc.certify(
        module, data, noise=sc.Ablation(2), plan=sc.Fixed(100), device="cpu", batch=50, out=tmp_path
    )
    assert run.manifest.classes == 3


def test_a_full_disk_stops_the_run_with_a_sentence_and_loses_nothing(tmp_path, monkeypatch):
    whole = certify(tmp_path / "whole", data=DATA * 2)
    opened = Journal.__init__

    def small(self, folder, *, write=False):
        opened(self, folder, write=write)
        if write:
            self._db.execute("PRAGMA max_page_count = 4")

    with monkeypatch.context() as disk:
        disk.setattr(Journal, "__init__", small)
        with refused("database-failed", sc.SmoothcertError, action="write to"):
            certify(tmp_path / "full", data=DATA * 2)
    assert 0 < len(sc.open_run(tmp_path / "full")) < len(whole)
    assert rows(certify(tmp_path / "full", data=DATA * 2)) == rows(whole)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": [(np.array([0.1, np.nan]), 0)]}, "input 0 of list has NaN or infinite values"),
        ({"data": [*DATA, (DATA[0][0], 2)]}, "label 2, but .* only the classes 0 to 1"),
        (
            {"data": [*DATA, (np.zeros(5), 0)]},
            r"input 40 of list has shape \(5,\), but the first input has \(6,\)",
        ),
        ({"classes": 7}, r"logits of shape \(8, 7\)"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, settings, message):
    with pytest.raises(sc.InvalidInput, match=message) as caught:
        certify(tmp_path / "run", **settings)
    assert "\n" not in str(caught.value)


def test_a_wrong_label_is_refused_before_the_run_where_labels_are_at_hand(tmp_path):
    np.savez(tmp_path / "data.npz", x=np.zeros((20, 6), np.float32), y=[*[0] * 19, 2])
    with refused("unknown-label", data="data", id=19, last=1):
        certify(tmp_path / "run", data=str(tmp_path / "data.npz"))
    np.savez(tmp_path / "unknown.npz", x=np.zeros((20, 6), np.float32))
    with refused("no-label", data="unknown", id=0):
        certify(
            tmp_path / "run",
            data=str(tmp_path / "unknown.npz"),
            plan=sc.Fixed(200, known_labels=True),
        )
    assert not (tmp_path / "run").exists()
    assert certify(tmp_path / "run", data=str(tmp_path / "data.npz"), limit=5).complete


@pytest.mark.parametrize(
    ("x", "label", "message"),
    [
        (
            np.zeros(6),
            99,
            "input 7 of list has label 99, but the model knows only the classes 0 to 1",
        ),
        (np.zeros(5), 0, r"input 7 of list has shape \(5,\), but the first input has \(6,\)"),
        (
            np.zeros(6),
            None,
            "input 7 of list has no label, and known_labels=True needs one for every input",
        ),
    ],
    ids=["label", "shape", "no label"],
)
@pytest.mark.parametrize("apart", [False, True], ids=["pairs", "labels="])
def test_a_mistake_in_data_in_memory_is_refused_before_the_run_and_can_be_put_right(
    tmp_path, x, label, message, apart
):
    rows = [*DATA[:7], (x, label), *DATA[8:]]
    data = (
        {"data": [x for x, _ in rows], "labels": [y for _, y in rows]} if apart else {"data": rows}
    )
    plan = sc.Fixed(200, known_labels=True)
    with pytest.raises(sc.InvalidInput, match=message):
        certify(tmp_path, plan=plan, **data)
    assert certify(tmp_path, plan=plan, limit=8).complete
    assert certify(tmp_path / "others", plan=plan, limit=7, **data).complete


def test_an_image_of_another_size_is_refused_before_the_run(tmp_path):
    (tmp_path / "images").mkdir()
    for number, size in enumerate([28, 28, 20]):
        Image.new("L", (size, size)).save(tmp_path / "images" / f"{number}.png")
    with refused("other-image-size", where=tmp_path / "images" / "2.png", size="20x20"):
        sc.certify(
            "fashion-cnn", tmp_path / "images", sigma=0.25, device="cpu", out=tmp_path / "run"
        )
    assert not (tmp_path / "run").exists()


def test_grey_images_do_not_pass_for_colours(tmp_path):
    with refused("other-channels", given="(1, 28, 28)", model="cifar-resnet20"):
        certify(tmp_path, "cifar-resnet20", "fashion-mnist", weights="none")


def test_noise_that_the_model_was_not_trained_with_is_a_warning(tmp_path):
    classifier = Classifier(above_half, 2, "mine", trained_sigma=1.0)
    with pytest.warns(
        UserWarning,
        match=r"trained with noise of deviation 1 and is certified with Gaussian\(sigma=0.25\)",
    ):
        certify(tmp_path, classifier, limit=1)


def test_the_manifest_says_what_was_certified_and_how(tmp_path):
    manifest = certify(tmp_path, seed=4, limit=2).manifest
    assert manifest.model.endswith(":above_half")
    assert manifest.plain()["plan"] == {
        "name": "InputSpecific",
        "samples": 2000,
        "pilot": 100,
        "alpha": 0.001,
    } | {
        "pilot_use": "fresh",
        "bound": "binary",
        "known_labels": False,
        "decline": 0.05,
        "kind": "absolute",
        "grid": "exact",
        "reference": "ceiling",
    }
    assert (manifest.seed, manifest.device, manifest.dtype, manifest.batch) == (
        4,
        "cpu",
        "float32",
        500,
    )
    assert manifest.circumstances["torch"] == torch.__version__.partition("+")[0]
    assert manifest.started <= manifest.finished
    json.dumps(manifest.plain())


def test_a_broken_run_gives_the_terminal_back(tmp_path, monkeypatch):
    progress = Display(bar=True)
    monkeypatch.setattr(progress, "update", Stop(3).update)
    with pytest.raises(KeyboardInterrupt):
        certify(tmp_path, progress=progress)
    assert not progress._bar.live.is_started


def test_a_path_is_as_good_as_its_name_and_a_moved_file_resumes(tmp_path):
    inputs = np.random.default_rng(0).random((3, 1, 28, 28), np.float32)
    settings = {"noise": sc.Gaussian(0.25), "plan": sc.Fixed(100), "out": tmp_path / "run"}
    np.savez(tmp_path / "x.npz", x=inputs, y=[0, 1, 2])
    sc.certify("fashion-cnn", tmp_path / "x.npz", limit=2, **settings)
    moved = (tmp_path / "x.npz").rename(tmp_path / "moved.npz")
    assert len(sc.certify("fashion-cnn", str(moved), limit=2, **settings)) == 2


def test_data_that_runs_code_of_the_user_is_the_same_by_the_rule_of_its_run(tmp_path):
    class Lazy:
        def __init__(self, rows):
            self.rows = rows

        def __len__(self):
            return len(self.rows)

        def __getitem__(self, index):
            return self.rows[index]

    other = Lazy([*DATA[:1], (DATA[1][0] * 0.9, DATA[1][1]), *DATA[2:]])
    certify(tmp_path, data=Lazy(DATA), limit=3)
    with refused("other-configuration", names=["data_hash"]):
        certify(tmp_path, data=other, limit=4)
    with Journal(tmp_path, write=True) as journal:  # version 1.0 hashed 16 inputs
        journal.write_manifest({"data_hash": journal.manifest().data_hash.split(";")[0]})
    assert len(certify(tmp_path, data=Lazy(DATA), limit=4)) == 4
    assert not audit(tmp_path, redraw=1, model=above_half, data=Lazy(DATA)).findings


def test_a_list_with_one_other_input_is_another_one(tmp_path):
    rows = [(np.full((1, 28, 28), i / 40, np.float32), 0) for i in range(40)]
    settings = {"noise": sc.Gaussian(0.25), "plan": sc.Fixed(100), "limit": 2, "out": tmp_path}
    sc.certify("fashion-cnn", rows, **settings)
    with refused("other-configuration", names=["data_hash"]):
        sc.certify("fashion-cnn", [*rows[:1], rows[2], *rows[2:]], **settings)


def test_a_combined_plan_warns_if_its_certificates_count_a_pilot_again(tmp_path):
    reused = sc.InputSpecific(500, pilot=50, pilot_use="reuse")
    with pytest.warns(UserWarning, match="the pilot is counted again"):
        certify(tmp_path / "first", plan=sc.Combined((reused, sc.Fixed(500, pilot=50))), limit=2)
    certify(tmp_path / "second", plan=sc.Combined((sc.Fixed(500, pilot=50), reused)), limit=2)


def test_with_known_labels_the_label_is_what_is_certified(tmp_path):
    run = certify(tmp_path, plan=sc.Fixed(2000, known_labels=True))
    assert run.samples.tolist() == [2000] * 40  # no pilot
    assert run.correct[~run.abstained].all()
    assert [c.proof.prediction for c in run.certificates()] == run.label.tolist()
    distance = np.array([abs(x[0] - 0.5) for x, _ in DATA])
    assert (run.radius <= distance).all()
    assert not audit(tmp_path, redraw=5, model=above_half, data=DATA).findings
    wrong = certify(tmp_path / "wrong", data=[(x, 1 - label) for x, label in DATA], plan=run.plan)
    assert wrong.abstained.all()  # neither a losing label nor another class is certified


def test_a_label_that_turns_out_to_be_missing_is_named_and_nothing_before_it_is_lost(tmp_path):
    class ReadLater(list):
        """A subclass may read files, so its labels are not known before."""

    data = ReadLater([*DATA[:5], (DATA[5][0], None)])
    with refused("no-label", id=5):
        certify(tmp_path, data=data, plan=sc.Fixed(200, known_labels=True))
    assert sc.open_run(tmp_path).id.tolist() == list(range(5))


def test_a_runner_up_bound_survives_the_journal_and_an_audit(tmp_path):
    def three(x):
        return (x[:, 0] > 0.4).long() + (x[:, 0] > 0.6).long()

    plan = sc.Fixed(2000, bound="runner-up")
    run = certify(tmp_path, three, classes=3, plan=plan, limit=12)
    assert np.all((run.upper > 0) & (run.upper <= 1 - run.lower + 1e-9))
    assert any(
        not c.abstained and c.count <= c.counted / 2 for c in run.certificates()
    )  # without a majority
    assert not audit(tmp_path, redraw=12, model=three, data=DATA).findings
    exported = sc.write_results(run, tmp_path / "a.csv", "csv")
    assert exported
    assert sc.read_results(tmp_path / "a.csv").upper.tolist() == run.upper.tolist()


@pytest.mark.parametrize("changed", [lambda y: y[:, :1], lambda y: y[:-1], lambda y: y[:, :, None]])
def test_a_model_that_returns_another_shape_later_is_named_and_nothing_is_lost(changed, tmp_path):
    changes = False

    class Change(Progress):
        def update(self, certificate, status):
            nonlocal changes
            changes = True

    with refused("other-output-shape"):
        certify(
            tmp_path,
            lambda x: changed(above_half(x)) if changes else above_half(x),
            progress=Change(),
        )
    assert len(sc.open_run(tmp_path))
