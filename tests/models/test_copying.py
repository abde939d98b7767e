import copy
import threading

import pytest
import torch
from tests.refusals import refused
from torch import nn

from smoothcert.models.base import copied
from smoothcert.models.outputs import fingerprint


@pytest.mark.filterwarnings(
    "ignore::FutureWarning"
)  # weight_norm is deprecated, and many networks have it
def test_a_module_that_computes_its_weights_can_be_copied():
    module = nn.utils.weight_norm(nn.Linear(4, 3))
    with pytest.raises(RuntimeError):
        copy.deepcopy(module)
    other, x = copied(module), torch.rand(2, 4)
    assert torch.equal(other(x), module(x))
    other.weight_g.data.mul_(2)
    assert not torch.equal(other(x), module(x))
    assert module.weight.grad_fn is not None
    assert fingerprint(module, torch.rand(4), torch.device("cpu"), torch.float32)


def test_a_module_that_cannot_be_copied_is_named():
    module = nn.Linear(4, 3)
    module.lock = threading.Lock()
    with refused("not-copyable", kind="Linear"):
        copied(module)


def compiled(module):
    return torch.compile(module, backend="eager")


@pytest.mark.parametrize(
    "wrap", [nn.DataParallel, compiled, lambda module: nn.DataParallel(compiled(module))]
)
def test_what_only_runs_a_module_is_left_out(wrap):
    inner = nn.Linear(4, 3)
    inner.register_forward_hook(lambda module, inputs, outputs: -outputs)
    assert type(copied(wrap(inner))) is nn.Linear


@pytest.mark.parametrize("wrap", [nn.DataParallel, compiled])
@pytest.mark.parametrize("hook", ["register_forward_hook", "register_forward_pre_hook"])
def test_hooks_that_would_be_left_out_are_refused(wrap, hook):
    """They may normalise the input, and a certificate without them would be about another classifier."""
    module = wrap(nn.Linear(4, 3))
    getattr(module, hook)(lambda *given: None)
    with refused("lost-hooks"):
        copied(module)
