import inspect
import re
import runpy
import sys
import time
import warnings

import numpy as np
import pytest
import torch
from scipy.stats import beta, norm
from tests.refusals import refused
from torch import nn

from smoothcert.compat.cohen import Smooth, _recommend_auto
from smoothcert.errors import SmoothcertWarning
from smoothcert.models.architectures import build


def above_half(x):
    return torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1)


def published(count, n, sigma, alpha):
    """The radius as Cohen's code computes it."""
    return sigma * norm.ppf(beta.ppf(alpha, count, n - count + 1))


def test_the_interface_is_the_published_one():
    assert list(inspect.signature(Smooth).parameters)[:3] == [
        "base_classifier",
        "num_classes",
        "sigma",
    ]
    assert list(inspect.signature(Smooth.certify).parameters) == [
        "self",
        "x",
        "n0",
        "n",
        "alpha",
        "batch_size",
    ]
    assert list(inspect.signature(Smooth.predict).parameters) == [
        "self",
        "x",
        "n",
        "alpha",
        "batch_size",
    ]
    assert Smooth.ABSTAIN == -1


def test_certify_gives_the_published_radius_of_its_votes_rounded_down():
    smooth = Smooth(above_half, 2, 0.25)
    for value in (0.9, 0.7, 0.2):
        x = torch.tensor([value, 0.3])
        prediction, radius = smooth.certify(x, 100, 2000, 0.001, 500)
        assert prediction == int(value > 0.5)
        assert (type(prediction), type(radius)) == (int, float)
        radii = published(np.arange(1001, 2001), 2000, 0.25, 0.001)
        assert np.min(np.abs(radii - radius)) < 1e-9
        assert np.min(radii[radii >= radius - 1e-15] - radius) < 1e-9
        assert radius < abs(value - 0.5)


def test_both_abstain_on_the_boundary():
    smooth = Smooth(above_half, 2, 0.25)
    x = torch.tensor([0.5, 0.0])
    assert smooth.certify(x, 50, 500, 0.001, 100) == (Smooth.ABSTAIN, 0.0)
    assert smooth.predict(x, 500, 0.001, 100) == Smooth.ABSTAIN
    assert smooth.predict(torch.tensor([0.9, 0.0]), 500, 0.001, 100) == 1


def test_calls_draw_noise_of_their_own_whatever_the_batch_size():
    smooth = Smooth(above_half, 2, 0.25)
    x = torch.tensor([0.6, 0.0])
    radii = {smooth.certify(x, 100, 5000, 0.001, batch)[1] for batch in (500, 500, 1000)}
    assert len(radii) == 3
    again = Smooth(above_half, 2, 0.25)
    assert {again.certify(x, 100, 5000, 0.001, batch)[1] for batch in (500, 500, 1000)} == radii


@pytest.mark.parametrize(("pixels", "rows"), [(3 * 32 * 32, 250), (8, 8192)])
def test_the_batch_size_is_honoured_and_small_inputs_get_more_rows(pixels, rows):
    sizes = set()

    def model(x):
        sizes.add(len(x))
        return above_half(x)

    Smooth(model, 2, 0.25).certify(torch.full((pixels,), 0.9), 100, 1000, 0.001, 250)
    assert max(sizes) == rows


def test_further_training_is_noticed():
    torch.manual_seed(0)
    network = nn.Linear(2, 2)
    smooth = Smooth(network, 2, 0.25)
    x = torch.tensor([0.9, 0.1])
    first = smooth.predict(x, 200, 0.001, 100)
    with torch.no_grad():
        network.weight.neg_()
        network.bias.neg_()
    assert smooth.predict(x, 200, 0.001, 100) == 1 - first
    assert not network.training


def test_a_decline_spends_less_and_gives_up_no_more():
    drawn = []

    def model(x):
        drawn.append(len(x))
        return above_half(x)

    def certified(**settings):
        smooth = Smooth(model, 2, 0.25, **settings)
        smooth.certify(x, 100, 20_000, 0.001, 100)
        drawn.clear()  # the first call also checks the model
        return smooth.certify(x, 100, 20_000, 0.001, 100)[1], sum(drawn)

    x = torch.tensor([0.75, 0.0])
    full, fixed = certified()
    less, cheap = certified(decline=0.05)
    assert cheap < fixed / 3
    assert full - 0.1 < less <= 0.25


def test_the_axes_of_an_input_stay_as_they_are():
    shapes = set()

    def model(x):
        shapes.add(tuple(x.shape[1:]))
        return above_half(x.flatten(1))

    Smooth(model, 2, 0.25).certify(torch.rand(8, 8, 3), 20, 100, 0.001, 100)
    assert shapes == {(8, 8, 3)}


def test_what_can_never_certify_is_refused():
    with refused("never-certifies", least=10):
        Smooth(above_half, 2, 0.25).certify(torch.zeros(2), 5, 5, 0.001, 100)
    with refused("not-between", name="sigma"):
        Smooth(above_half, 2, -1.0)


def test_without_samples_no_class_can_be_chosen():
    with refused("too-small", name="n0", value=0):
        Smooth(above_half, 2, 0.25).certify(torch.zeros(2), 0, 100, 0.001, 100)


# A script in the manner of 2019: data, model and options its own, votes counted input by input, a table of tabs.
SCRIPT = """
import argparse, datetime
from time import time
import torch
from core import Smooth

parser = argparse.ArgumentParser()
parser.add_argument("sigma", type=float)
parser.add_argument("outfile")
parser.add_argument("--N0", type=int, default=100)
parser.add_argument("--N", type=int, default=100000)
parser.add_argument("--alpha", type=float, default=0.001)
parser.add_argument("--batch", type=int, default=1000)
parser.add_argument("--predict", action="store_true")
args = parser.parse_args()

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 4))
smoothed = Smooth(model, 4, args.sigma)
with open(args.outfile, "w") as f:
    print("idx\\tlabel\\tpredict" + ("" if args.predict else "\\tradius") + "\\tcorrect\\ttime", file=f, flush=True)
    for i in range(5):
        x, label = torch.rand(3, 2, 2), i % 4
        before = time()
        if args.predict:
            prediction, radius = smoothed.predict(x, args.N, args.alpha, args.batch), ""
        else:
            prediction, radius = smoothed.certify(x, args.N0, args.N, args.alpha, args.batch)
            radius = "{:.3}\\t".format(radius)
        took = str(datetime.timedelta(seconds=(time() - before)))
        print("{}\\t{}\\t{}\\t{}{}\\t{}".format(i, label, prediction, radius, int(prediction == label), took), file=f)
"""


@pytest.mark.parametrize(
    ("options", "row"),
    [
        ((), r"\d\t\d\t(-1|\d)\t[\d.e-]+\t[01]\t0:00:\d\d\.\d+"),
        (("--predict", "--N", "1000"), r"\d\t\d\t(-1|\d)\t[01]\t0:00:\d\d\.\d+"),
    ],
    ids=["certify", "predict"],
)
def test_a_script_of_2019_runs_with_one_changed_import(tmp_path, monkeypatch, options, row):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["script.py", "0.25", "out.tsv", *options])
    (tmp_path / "script.py").write_text(
        SCRIPT.replace("from core import", "from smoothcert.compat.cohen import")
    )
    runpy.run_path("script.py", run_name="__main__")
    header, *lines = (tmp_path / "out.tsv").read_text().splitlines()
    assert header.split("\t")[:3] == ["idx", "label", "predict"]
    assert len(lines) == 5
    for line in lines:
        assert re.fullmatch(row, line)


def one_loop(model, x, n, sigma, alpha, batch):
    """The usual loop: the same votes, drawn by torch and counted one by one."""
    votes = np.zeros(3, int)
    with torch.no_grad():
        for start in range(0, n, batch):
            rows = x.repeat((min(batch, n - start), 1))
            for label in model(rows + torch.randn_like(rows) * sigma).argmax(1).numpy():
                votes[label] += 1
    return published(votes.max(), n, sigma, alpha)


def test_it_is_not_slower_than_the_usual_loop_on_a_tiny_model():
    """In processor time, which other programs on the machine do not change."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 20), nn.ReLU(), nn.Linear(20, 3)).eval(), torch.rand(4)
    smooth = Smooth(model, 3, 0.25)
    smooth.certify(x, 100, 100_000, 0.001, 1000)
    ours, loops = [], []
    for _ in range(5):
        start = time.process_time()
        smooth.certify(x, 100, 100_000, 0.001, 1000)
        middle = time.process_time()
        one_loop(model, x, 100_100, 0.25, 0.001, 1000)
        ours.append(middle - start)
        loops.append(time.process_time() - middle)
    assert min(ours) < min(loops)  # half of it


class Spy(nn.Module):
    """Keeps the number formats in which it is called."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.formats = set()

    def forward(self, x):
        self.formats.add(x.dtype)
        return self.layer(x)

    def __deepcopy__(self, memo):  # copies report here as well
        twin = Spy()
        twin.load_state_dict(self.state_dict())
        twin.formats = self.formats
        return twin


def test_the_classifier_stays_in_float32_unless_the_caller_asks_for_something_else():
    spy = Spy()
    x = torch.rand(2)
    Smooth(spy, 2, 0.25).certify(x, 100, 2000, 0.001, 1000)
    assert spy.formats == {torch.float32}
    Smooth(spy, 2, 0.25, dtype="bfloat16").certify(x, 100, 2000, 0.001, 1000)
    assert torch.bfloat16 in spy.formats


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_the_first_call_on_cuda_says_once_how_to_be_faster():
    _recommend_auto.cache_clear()
    x = torch.rand(3, 32, 32, device="cuda")
    network = build("cifar-resnet20").cuda().eval()
    with pytest.warns(SmoothcertWarning, match="float32, as the code of 2019 does"):
        Smooth(network, 10, 0.25).certify(x, 100, 1000, 0.001, 100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Smooth(network, 10, 0.25).certify(x, 100, 1000, 0.001, 100)
        Smooth(network, 10, 0.25, dtype="auto").certify(x, 100, 1000, 0.001, 100)


def test_attributes_that_are_changed_later_count():
    """The published class reads them at every call, and programs rely on that."""
    smooth = Smooth(
        lambda x: torch.stack([0.5 - x[:, 0], x[:, 0] - 0.5], 1), num_classes=2, sigma=0.25
    )
    x = torch.tensor([1.0, 0.0])
    before = smooth.certify(x, n0=100, n=1000, alpha=0.001, batch_size=100)
    smooth.sigma = 0.1
    assert smooth.certify(x, n0=100, n=1000, alpha=0.001, batch_size=100)[1] < before[1]
    smooth.base_classifier = lambda x: torch.stack([x[:, 0] - 0.5, 0.5 - x[:, 0]], 1)
    assert smooth.certify(x, n0=100, n=1000, alpha=0.001, batch_size=100)[0] == 0
