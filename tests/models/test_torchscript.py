"""TorchScript, exported and quantized modules."""

import copy

import pytest
import torch
from tests.refusals import refused
from torch import nn

import smoothcert as sc
from smoothcert.models import load_classifier
from smoothcert.models.base import snapshot, state_hash
from smoothcert.runs.progress import Progress

IMAGES = torch.rand((5, 3, 4, 4), generator=torch.Generator().manual_seed(0))
FEW = sc.Fixed(100)
QUIET = Progress()

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns about the future of these forms


def network():
    torch.manual_seed(0)
    convolution = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*convolution, nn.Dropout(), nn.Linear(32, 3)).eval()


def scripted():
    return torch.jit.script(network())


def traced():
    return torch.jit.trace(network(), IMAGES)


def frozen():
    return torch.jit.freeze(scripted())


def inside_a_module():
    return nn.Sequential(nn.Identity(), scripted())


def exported():
    rows = torch.export.Dim("rows", min=1, max=4096)
    return torch.export.export(network(), (IMAGES,), dynamic_shapes=({0: rows},)).module()


def quantized():
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    prepared = prepare_fx(network(), get_default_qconfig_mapping(), (IMAGES,))
    prepared(IMAGES)
    return convert_fx(prepared).eval()


def quantized_script():
    return torch.jit.script(quantized())


def quantized_dynamically():
    return torch.ao.quantization.quantize_dynamic(network(), {nn.Linear})


def smoothed(model, **settings):
    settings = {"sigma": 0.5, "device": "cpu", "batch": 64} | settings
    return sc.Smoothed(model, **settings)


def votes(results):
    return [certificate.looks for certificate in results]


FORMS = [scripted, traced, frozen, inside_a_module, exported, quantized, quantized_script]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_every_form_is_certified_in_memory_and_on_disk(form, tmp_path):
    model = form()
    some = smoothed(model, dtype="float32")
    as_function = smoothed(lambda x: model(x), dtype="float32")
    for _ in range(2):
        assert votes(some.certify(IMAGES, plan=FEW)) == votes(as_function.certify(IMAGES, plan=FEW))
    assert len(some.predict(IMAGES)) == len(IMAGES)
    run = some.certify(IMAGES, plan=FEW, ids=[0, 1], out=tmp_path, progress=QUIET)
    run = some.certify(IMAGES, plan=FEW, out=tmp_path, progress=QUIET)
    assert len(run) == len(IMAGES)
    assert sc.audit(run, model=model, data=IMAGES).holds


@pytest.mark.parametrize("form", [scripted, traced, quantized_script])
def test_a_file_of_the_user_may_load_torchscript(form, tmp_path, monkeypatch):
    torch.jit.save(form(), tmp_path / "net.pt")
    code = "import torch\ndef net():\n    return torch.jit.load(FILE)\n"
    name = f"loads_{form.__name__}"
    (tmp_path / f"{name}.py").write_text(code.replace("FILE", repr(str(tmp_path / "net.pt"))))
    monkeypatch.syspath_prepend(tmp_path)
    first, again = (load_classifier(f"{name}:net") for _ in range(2))
    assert first.weights_hash == again.weights_hash
    loaded = smoothed(f"{tmp_path / name}.py:net")
    direct = smoothed(torch.jit.load(tmp_path / "net.pt"))
    assert votes(loaded.certify(IMAGES, plan=FEW)) == votes(direct.certify(IMAGES, plan=FEW))


def test_a_file_of_the_user_may_return_an_exported_module(tmp_path):
    rows = torch.export.Dim("rows", min=1, max=4096)
    program = torch.export.export(network(), (IMAGES,), dynamic_shapes=({0: rows},))
    torch.export.save(program, tmp_path / "net.pt2")
    (tmp_path / "loads_exported.py").write_text(
        "import torch\n"
        f"def net():\n    return torch.export.load({str(tmp_path / 'net.pt2')!r}).module()\n"
    )
    some = smoothed(f"{tmp_path}/loads_exported.py:net", dtype="float32")
    plain = smoothed(network(), dtype="float32")
    assert votes(some.certify(IMAGES, plan=FEW)) == votes(plain.certify(IMAGES, plan=FEW))


@pytest.mark.parametrize("form", [scripted, traced])
def test_changed_weights_and_modes_of_torchscript_are_noticed(form):
    model = form()
    some = smoothed(model)
    first = votes(some.certify(IMAGES, plan=FEW))
    for parameter in model.parameters():
        parameter.data.neg_()
    changed = smoothed(model)
    changed.certify(IMAGES, plan=FEW)
    assert votes(some.certify(IMAGES, plan=FEW)) == votes(changed.certify(IMAGES, plan=FEW))
    assert votes(changed.certify(IMAGES, plan=FEW)) != first


@pytest.mark.parametrize("around", [lambda net: net, lambda net: lambda x: net(x)])
def test_torchscript_in_training_mode_is_refused_and_keeps_its_statistics(around):
    model = torch.jit.script(network().train())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for _ in range(2):
        with refused("training-mode", layer="BatchNorm2d"):
            smoothed(around(model)).certify(IMAGES, plan=FEW)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    model.eval()
    smoothed(around(model)).certify(IMAGES, plan=FEW)


@pytest.mark.parametrize(
    "form",
    [
        quantized_dynamically,
        lambda: torch.jit.script(quantized_dynamically()),
        lambda: (lambda net: lambda x: net(x))(quantized_dynamically()),
    ],
    ids=["module", "script", "function"],
)
def test_dynamic_quantization_depends_on_the_batch_and_needs_single_rows(form):
    with refused("dynamic-quantization", layer="Linear"):
        smoothed(form()).certify(IMAGES, plan=FEW)
    some = smoothed(form(), stochastic=True)
    assert len(some.certify(IMAGES, plan=sc.Fixed(20, pilot=10))) == len(IMAGES)


def test_the_hash_sees_constants_code_and_quantized_weights():
    class Constant(nn.Module):
        def __init__(self, by):
            super().__init__()
            self.by = by

        def forward(self, x):
            return x.flatten(1)[:, :3] + torch.full((3,), self.by)

    shifts = [state_hash(torch.jit.trace(Constant(by), IMAGES)) for by in (0.0, 1.0, 1.0)]
    assert shifts[0] != shifts[1] == shifts[2]
    assert state_hash(scripted()) == state_hash(scripted())
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 60)).eval()
    other = copy.deepcopy(model)
    other[1].weight.data[30, 20] *= -1  # in the middle, which a printed tensor leaves out
    pair = [torch.ao.quantization.quantize_dynamic(m, {nn.Linear}) for m in (model, other)]
    assert state_hash(pair[0]) != state_hash(pair[1])
    assert snapshot(pair[0]) != snapshot(pair[1])
    scripts = [torch.jit.script(m) for m in pair]
    assert state_hash(scripts[0]) != state_hash(scripts[1])


def test_an_exported_program_itself_is_refused_in_one_sentence():
    program = torch.export.export(network(), (IMAGES,))
    with pytest.raises(sc.InvalidInput, match=r"exported_program.module\(\)"):
        smoothed(program).certify(IMAGES, plan=FEW)


def test_an_error_in_torchscript_is_named_by_its_last_line():
    with pytest.raises(sc.InvalidInput, match=r"batch of shape .*: RuntimeError: .*channels"):
        smoothed(scripted()).certify(IMAGES[:, :2], plan=FEW)
