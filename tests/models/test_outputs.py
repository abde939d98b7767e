import collections
import dataclasses

import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import nn

import smoothcert as sc
from smoothcert.models.outputs import LabelClassifier, find_logits

LOGITS = torch.rand((5, 3), generator=torch.Generator().manual_seed(0))
FEATURES = torch.zeros(5, 64)
LOSS = torch.tensor(0.5)
CPU = torch.device("cpu")
Named = collections.namedtuple("Named", ["aux", "logits"])


@dataclasses.dataclass
class Record:
    logits: torch.Tensor


@pytest.mark.parametrize(
    "output",
    [
        LOGITS,
        LOGITS.numpy(),
        (LOGITS,),
        [LOGITS],
        (LOGITS.numpy(), None),
        (LOSS, LOGITS),
        (LOGITS, FEATURES),
        (FEATURES, LOGITS),
        {"logits": LOGITS, "aux": LOGITS},
        {"out": LOGITS, "features": FEATURES},
        Named(LOGITS + 1, LOGITS),
        Record(LOGITS),
    ],
)
def test_the_logits_are_found_in_every_common_form(output):
    assert torch.equal(find_logits(output, classes=3, device=CPU), LOGITS)


def test_a_model_output_of_hugging_face_has_logits():
    outputs = pytest.importorskip("transformers.modeling_outputs")
    output = outputs.ImageClassifierOutput(loss=LOSS, logits=LOGITS, hidden_states=(FEATURES,))
    assert find_logits(output, classes=3, device=CPU) is LOGITS


@pytest.mark.parametrize(
    ("output", "code", "fields"),
    [
        ((LOGITS, LOGITS), "no-logits", {"kind": "tuple"}),
        ({"a": LOSS, "b": FEATURES[0]}, "no-logits", {"kind": "dict"}),
        ("cat", "other-task", {"task": "text"}),
        (None, "no-logits", {"kind": "NoneType"}),
        (np.array(["cat"]), "names-of-classes", {}),
    ],
)
def test_what_could_be_anything_is_refused(output, code, fields):
    with refused(code, **fields):
        find_logits(output, classes=3, device=CPU)


def test_features_are_not_taken_for_logits_while_the_number_of_classes_is_unknown():
    with refused("no-logits"):
        find_logits((FEATURES, LOGITS), classes=None, device=CPU)


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda y: (y,),
        lambda y: {"logits": y},
        lambda y: y.detach().numpy(),
        lambda y: y.argmax(1).numpy(),
        lambda y: (y, torch.zeros(len(y), 64)),
        lambda y: y.to_sparse(),
    ],
)
@pytest.mark.parametrize("stochastic", [False, True])
def test_a_model_is_certified_whatever_it_wraps_its_logits_in(wrapped, stochastic, tmp_path):
    torch.manual_seed(0)
    network = nn.Linear(4, 3).eval()
    data = (np.random.default_rng(0).random((3, 4)), np.arange(3))
    settings = {
        "noise": sc.Gaussian(0.5),
        "plan": sc.Fixed(100),
        "classes": 3,
        "device": "cpu",
        "batch": 50,
    }
    plain = sc.certify(lambda x: network(x), data, out=tmp_path / "plain", **settings)
    settings |= {"stochastic": stochastic, "out": tmp_path / "wrapped"}
    other = sc.certify(lambda x: wrapped(network(x)), data, **settings)
    assert plain.radius.tolist() == other.radius.tolist()
    assert plain.count.tolist() == other.count.tolist()


def test_only_nan_plus_infinity_and_nothing_but_minus_infinity_are_no_vote():
    inf, nan = float("inf"), float("nan")
    rows = [[0.0, -inf, -1], [-inf, -inf, -2], [-inf] * 3, [inf, 0, 0], [nan, 0, 1], [nan, -inf, 1]]
    votes = LabelClassifier(lambda x: torch.tensor(rows), classes=3)(torch.zeros(6, 1))
    assert votes.tolist() == [0, 2, 3, 3, 3, 3]


def test_logarithms_of_probabilities_get_the_votes_of_the_probabilities():
    """Trees give a probability of exactly 0 to most classes, so `predict_log_proba` is full of -inf."""

    def proba(x):
        return nn.functional.one_hot((x[:, 0] > 0.5).long() + 1, 3).double()

    for model in (proba, lambda x: proba(x).log(), lambda x: proba(x).log().numpy()):
        smoothed = sc.Smoothed(model, sigma=0.5, device="cpu")
        assert smoothed.certify([[0.9], [0.1]], [2, 1], plan=sc.Fixed(1000)).certified_accuracy(
            [0.0]
        ) == [1.0]
