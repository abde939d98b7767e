"""Fine-tuned networks: the number of classes comes from the weights."""

import pytest
import torch
from tests.refusals import refused
from torch import nn

from smoothcert.models import load_classifier
from smoothcert.models.architectures import build


@pytest.fixture(scope="module")
def five_classes(tmp_path_factory):
    """Weights of a ResNet-18 whose head was replaced, as most people save them."""
    models = pytest.importorskip("torchvision").models
    network = models.resnet18()
    network.fc = nn.Linear(512, 5)
    path = tmp_path_factory.mktemp("weights") / "fine-tuned.pth"
    torch.save(network.state_dict(), path)
    return path


@pytest.mark.parametrize("source", ["torchvision", "timm"])
def test_the_head_of_the_weights_decides(five_classes, source):
    pytest.importorskip(source)
    loaded = load_classifier(f"{source}:resnet18", weights=five_classes)
    assert loaded.classes == 5
    assert loaded.module(torch.rand(1, 3, 64, 64)).shape == (1, 5)


def test_a_head_of_hugging_face_decides(tmp_path):
    transformers = pytest.importorskip("transformers")
    shape = {"embedding_size": 8, "hidden_sizes": [8], "depths": [1], "layer_type": "basic"}
    published = transformers.ResNetForImageClassification(transformers.ResNetConfig(**shape))
    published.save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text('{"do_normalize": false}')
    tuned = transformers.ResNetForImageClassification(
        transformers.ResNetConfig(**shape, num_labels=7)
    )
    torch.save(tuned.state_dict(), tmp_path / "tuned.pth")
    assert load_classifier(f"hf:{tmp_path}", weights=tmp_path / "tuned.pth").classes == 7


def test_a_bundled_architecture_follows_the_weights_as_well(tmp_path):
    torch.save(build("cifar-resnet20", classes=100).state_dict(), tmp_path / "cifar100.pth")
    assert load_classifier("cifar-resnet20", weights=tmp_path / "cifar100.pth").classes == 100


def test_another_number_that_the_user_gives_is_refused(five_classes):
    with refused("weights-do-not-fit"):
        load_classifier("torchvision:resnet18", weights=five_classes, classes=4)


def test_a_changed_network_gets_the_lines_of_a_file_that_work(tmp_path, monkeypatch):
    models = pytest.importorskip("torchvision").models
    network = models.resnet18()
    network.fc = nn.Sequential(nn.Dropout(), nn.Linear(512, 3))
    torch.save(network.state_dict(), tmp_path / "changed.pth")
    with refused("weights-do-not-fit") as error:
        load_classifier("torchvision:resnet18", weights=tmp_path / "changed.pth")
    code = error.value.fields["factory"].split("\n\n", 1)[1]
    assert "network.fc = nn.Linear(512, 3)" in code
    (tmp_path / "unchanged.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with refused("weights-do-not-fit"):  # pasted as it is, it runs, and other layers are refused
        load_classifier("unchanged:model", weights=tmp_path / "changed.pth")
    code = code.replace("nn.Linear(512, 3)", "nn.Sequential(nn.Dropout(), nn.Linear(512, 3))")
    (tmp_path / "own_resnet.py").write_text(code)
    loaded = load_classifier("own_resnet:model", weights=tmp_path / "changed.pth")
    with torch.inference_mode():
        x = torch.rand(1, 3, 64, 64)
        mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])
        normalised = (x - mean[:, None, None]) / deviation[:, None, None]
        torch.testing.assert_close(loaded.module(x), network.eval()(normalised))


def test_the_lines_name_the_layer_that_was_changed(tmp_path):
    models = pytest.importorskip("torchvision").models
    network = models.mobilenet_v2()
    network.classifier[1] = nn.Sequential(nn.Linear(1280, 5))
    torch.save(network.state_dict(), tmp_path / "changed.pth")
    with refused("weights-do-not-fit") as error:
        load_classifier("torchvision:mobilenet_v2", weights=tmp_path / "changed.pth")
    assert "network.classifier[1] = nn.Linear(1280, 5)" in error.value.fields["factory"]
