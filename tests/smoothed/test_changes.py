"""A `Smoothed` never goes on with an old classifier, and never with one that has become random."""

import functools
import types

import numpy as np
import pytest
import torch
from tests.refusals import refused
from torch import nn
from torch.nn import functional as F

import smoothcert as sc
from smoothcert.models.base import snapshot

FEW = sc.Fixed(100)
IMAGES = torch.rand((6, 3, 4), generator=torch.Generator().manual_seed(0))


def smoothed(model, **settings):
    return sc.Smoothed(model, noise=sc.Gaussian(0.5), device="cpu", batch=128, **settings)


class Shift:
    """A hook that is an object. A copy of a module gets a copy of it."""

    def __init__(self, by):
        self.by = torch.tensor(by)

    def __call__(self, module, inputs, outputs):
        return outputs + self.by


class Scaled(nn.Module):
    """A network with settings in every kind of attribute."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(12, 3)
        self.settings = {"signs": [1.0, 1.0]}
        self.config = types.SimpleNamespace(sign=1.0)
        self.array = np.ones(3, np.float32)
        self.plain = torch.ones(3)

    def forward(self, x):
        signs = self.settings["signs"][1] * self.config.sign
        return signs * self.layer(x.flatten(1)) * torch.from_numpy(self.array) * self.plain


def hooked(hook):
    model = Scaled().eval()
    model.handle = model.register_forward_hook(hook)
    return model


def replace_hook(model):
    model.handle.remove()
    model.handle = model.register_forward_hook(lambda module, inputs, outputs: -outputs)


def replace_function_of_hook(model):
    [number] = model._forward_hooks
    model._forward_hooks[number] = lambda module, inputs, outputs: -outputs


def change_hook(model):
    [hook] = model._forward_hooks.values()
    hook.by = torch.tensor([-9.0, 9.0, 0.0])


def change_tensor_of_hook(model):
    [hook] = model._forward_hooks.values()
    hook.by.data.copy_(torch.tensor([-9.0, 9.0, 0.0]))


def replace_pre_hook(model):
    model.before.remove()
    model.layer.register_forward_pre_hook(lambda module, inputs: (-inputs[0] - 1,))


def change_item(model):
    model.settings["signs"][1] = -1.0


def change_object(model):
    model.config.sign = -1.0


def change_array(model):
    model.array *= -1


def change_plain_tensor(model):
    model.plain.neg_()


def change_data(model):
    model.layer.weight.data.neg_()


def change_one_weight(model):
    model.layer.weight.data[0, 0] = 40.0


def change_shared_memory(model):
    model.layer.bias.detach().numpy()[0] = 40.0


def swap_average(model):
    for parameter in model.parameters():
        average = -parameter.detach().clone()
        parameter.data, average = average, parameter.data


def change_method(model):
    model.layer.forward = lambda x: -x[:, :3]


def change_norm(model):
    nn.utils.parametrizations.weight_norm(model.layer)
    with torch.no_grad():
        model.layer.parametrizations.weight.original1.neg_()


@pytest.mark.parametrize(
    "change",
    [
        replace_hook,
        replace_function_of_hook,
        change_hook,
        change_tensor_of_hook,
        replace_pre_hook,
        change_item,
        change_object,
        change_array,
        change_plain_tensor,
        change_data,
        change_one_weight,
        change_shared_memory,
        swap_average,
        change_method,
        change_norm,
    ],
)
@pytest.mark.parametrize("call", ["certify", "predict"])
def test_the_next_call_uses_what_has_changed(change, call):
    model = hooked(Shift([0.0, 0.0, 0.0]))
    model.before = model.layer.register_forward_pre_hook(lambda module, inputs: inputs)

    def votes(smoothed):
        if call == "predict":
            return [found.look.votes for found in smoothed.predict(IMAGES, samples=300)]
        return [certificate.looks for certificate in smoothed.certify(IMAGES, plan=FEW)]

    before = smoothed(model)
    first = votes(before)
    change(model)
    after = smoothed(model)
    votes(after)
    assert votes(before) == votes(after) != first


def test_a_class_may_get_another_forward():
    class Patched(Scaled):
        pass

    model = Patched().eval()
    before = snapshot(model)
    Patched.forward = lambda self, x: -Scaled.forward(self, x)
    assert snapshot(model) != before


def test_quantized_convolutions_have_equal_snapshots():
    quantized = torch.ao.nn.quantized.Conv2d(3, 4, 3)
    assert snapshot(quantized) == snapshot(quantized) != snapshot(nn.Identity())


def test_what_has_not_changed_is_not_prepared_again():
    model = hooked(Shift([0.0, 0.0, 0.0]))
    assert snapshot(model) == snapshot(model)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    before = snapshot(model)
    model.load_state_dict(weights)
    assert snapshot(model) == before
    model.train()
    assert snapshot(model) != before


def test_a_module_that_cannot_be_read_never_counts_as_unchanged():
    class Stubborn:
        def __reduce_ex__(self, protocol):
            raise TypeError

    model = Scaled()
    model.stubborn = Stubborn()
    assert snapshot(model) != snapshot(model)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", lambda x: -x.flatten(1)[:, :3]),
        ("noise", sc.Gaussian(0.1)),
        ("sigma", 0.1),
        ("dtype", "float64"),
        ("classes", 5),
        ("seed", 1),
        ("denoiser", None),
        ("stochastic", True),
        ("batch", 3),
        ("sigm", 0.1),
    ],
)
@pytest.mark.parametrize("called", [False, True])
def test_no_attribute_can_be_set(name, value, called):
    some = smoothed(Scaled().eval())
    shown = repr(some)
    if called:
        some.certify(IMAGES, plan=FEW)
    with refused("smoothed-is-frozen", name=name):
        setattr(some, name, value)
    assert repr(some) == shown


class Trained:
    """A network with dropout, and functions around it."""

    def __init__(self, *layers):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Flatten(), *layers, nn.Linear(12, 3)).eval()
        self.spare = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3)).train()  # it is never called

    def __call__(self, x):
        return self.net(x)

    def method(self, x):
        return {"logits": self.net(x)}

    def labels(self, x):
        return self.net(x).argmax(1)


def closure(made):
    net = made.net
    return lambda x: net(x)


def default(made):
    def function(x, net=made.net):
        return net(x)

    return function


def nested(made):
    def inner(x):
        return made.net(x)

    @functools.wraps(inner)
    def outer(x):
        return inner(x)

    return outer


HOLDER: dict[str, nn.Module] = {}


def named_globally(made):
    HOLDER["net"] = made.net
    return lambda x: HOLDER["net"](x)


def forward_alone(made):
    return made.net.forward


def compiled(made):
    net = torch.compile(made.net, backend="eager")
    return lambda x: net(x)


FUNCTIONS = {
    "closure": closure,
    "default": default,
    "nested": nested,
    "global": named_globally,
    "object": lambda made: made,
    "method": lambda made: made.method,
    "labels": lambda made: made.labels,
    "forward": forward_alone,
    "compiled": compiled,
    "partial": lambda made: functools.partial(lambda net, x: net(x), made.net),
}


@pytest.mark.parametrize("layer", [nn.Dropout(0.05), nn.BatchNorm1d(12)], ids=lambda x: str(x)[:7])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("out", [None, "run"])
def test_a_function_whose_network_is_trained_again_is_refused(function, layer, out, tmp_path):
    made = Trained(layer)
    before = {name: value.clone() for name, value in made.net.state_dict().items()}
    where = {} if out is None else {"out": tmp_path / out, "progress": sc.runs.progress.Progress()}
    some = smoothed(function(made), classes=3)
    some.certify(IMAGES, plan=FEW, ids=[0, 1], **where)
    made.net.train()
    with refused("training-mode", layer=type(layer).__name__):
        some.certify(IMAGES, plan=FEW, ids=[0, 1, 2], **where)
    if out is None:
        with refused("training-mode"):
            some.predict(IMAGES)
    after = made.net.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert made.net.training
    made.net.eval()
    some.certify(IMAGES, plan=FEW, ids=[0, 1, 2], **where)


class Noisy(nn.Module):
    def forward(self, x):
        return x + 0.5 * torch.randn_like(x) if self.training else x


class Centred(nn.Module):
    """Batch statistics by hand, with a buffer that is replaced in every call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(12))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        if not self.training:
            return x - self.mean
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return x - x.mean(0)


@pytest.mark.parametrize("layer", [Noisy, Centred])
@pytest.mark.parametrize("function", [closure, lambda made: made.labels], ids=["logits", "labels"])
def test_layers_of_the_user_are_noticed_by_what_they_answer(layer, function):
    made = Trained(layer())
    before = {name: value.clone() for name, value in made.net.state_dict().items()}
    some = smoothed(function(made), classes=3)
    some.certify(IMAGES, plan=FEW)
    made.net.train()
    with refused("answer-changes"):
        some.certify(IMAGES, plan=FEW)
    after = made.net.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not any(buffer.is_inference() for buffer in made.net.buffers())
    made.net.eval()
    some.certify(IMAGES, plan=FEW)


def test_a_function_without_modules_that_becomes_random_is_refused():
    chance = {"p": 0.0}
    some = smoothed(lambda x: F.dropout(x.flatten(1)[:, :3], chance["p"]))
    some.certify(IMAGES, plan=FEW)
    chance["p"] = 0.3
    with refused("answer-changes"):
        some.predict(IMAGES)


def test_a_function_around_new_weights_is_certified_again():
    made = Trained()
    some, again = smoothed(closure(made)), smoothed(closure(made))
    some.certify(IMAGES, plan=FEW)
    again.certify(IMAGES, plan=FEW)
    with torch.no_grad():
        made.net[1].weight.neg_()
    fresh = smoothed(closure(made))
    fresh.certify(IMAGES, plan=FEW)
    votes = [[c.looks for c in s.certify(IMAGES, plan=FEW)] for s in (some, again, fresh)]
    assert votes[0] == votes[1] == votes[2]


def test_random_by_design_stays_allowed_in_a_function():
    made = Trained(nn.Dropout(0.2))
    made.net.train()
    some = smoothed(closure(made), stochastic=True)
    assert len(some.certify(IMAGES[:2], plan=sc.Fixed(20, pilot=10))) == 2
    assert len(some.certify(IMAGES[:2], plan=sc.Fixed(20, pilot=10))) == 2
    batch_norm = Trained(nn.BatchNorm1d(12))
    batch_norm.net.train()
    with refused("training-mode", layer="BatchNorm1d"):
        smoothed(closure(batch_norm), stochastic=True).certify(IMAGES[:2], plan=FEW)
