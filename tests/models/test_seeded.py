import random

import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import nn

import smoothcert as sc
from smoothcert.errors import InvalidInput
from smoothcert.models import SeededRows
from smoothcert.models.outputs import check_classifier
from smoothcert.tasks.audit import audit

ROWS = torch.rand((8, 6), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: torch.rand(x.shape[0], 3),
        lambda x: torch.from_numpy(np.random.random((x.shape[0], 3))),  # noqa: NPY002
        lambda x: torch.tensor([[random.random() for _ in range(3)] for _ in x]),
    ],
    ids=["torch", "numpy", "python"],
)
def test_a_row_gets_the_same_random_numbers_in_every_batch_and_others_get_others(draw):
    model = SeededRows(lambda x: x[:, :3] + draw(x))
    found = model(ROWS)
    assert torch.equal(found, model(ROWS))
    assert torch.equal(found[2:5], model(ROWS[2:5]))
    assert len({tuple(row) for row in (found - ROWS[:, :3]).tolist()}) == 8
    check_classifier(model, 3, ROWS)


def test_votes_of_a_random_classifier_are_independent_of_each_other():
    votes = SeededRows(lambda x: (torch.rand(len(x)) < 0.5).long())(torch.rand(4000, 3)).double()
    lagged = np.corrcoef(votes[:-1], votes[1:])[0, 1]
    assert abs(votes.mean() - 0.5) < 0.04
    assert abs(lagged) < 0.06


def test_dropout_may_stay_on_and_batch_statistics_may_not():
    torch.manual_seed(0)
    check_classifier(SeededRows(nn.Sequential(nn.Dropout(0.1), nn.Linear(6, 3)).train()), 3, ROWS)
    with refused("training-mode"):
        check_classifier(
            SeededRows(nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3)).train()), 3, ROWS
        )


def test_a_generator_of_the_model_itself_is_refused():
    generator = torch.Generator().manual_seed(0)
    with refused("answer-changes"):
        check_classifier(
            SeededRows(lambda x: x[:, :3] + torch.rand((len(x), 3), generator=generator)), 3, ROWS
        )


def test_a_run_with_a_random_classifier_is_resumed_and_audited(tmp_path):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Dropout(0.2), nn.Linear(6, 3)).train()
    data = (np.random.default_rng(0).random((4, 6)), np.zeros(4, int))
    settings = {
        "noise": sc.Gaussian(0.5),
        "plan": sc.Fixed(100),
        "device": "cpu",
        "batch": 50,
        "stochastic": True,
    }
    whole = sc.certify(network, data, out=tmp_path / "whole", **settings)
    sc.certify(network, data, out=tmp_path / "parts", limit=2, **settings)
    parts = sc.certify(network, data, out=tmp_path / "parts", **settings)
    assert whole.count.tolist() == parts.count.tolist()
    assert audit(parts.path, model=network, data=data).findings == ()
    with pytest.raises(InvalidInput, match="holds another run"):
        sc.certify(
            network.eval(), data, out=tmp_path / "parts", **(settings | {"stochastic": False})
        )
