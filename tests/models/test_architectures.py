import pytest
import torch
from tests.refusals import refused

from smoothcert.data import load_dataset
from smoothcert.models import load_classifier
from smoothcert.models.architectures import ARCHITECTURES, build


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_maps_a_batch_of_its_shape_to_logits(name):
    module = build(name, classes=7).eval()
    assert module(torch.rand(2, *ARCHITECTURES[name].input_shape)).shape == (2, 7)


def test_resnets_have_as_many_layers_as_their_names_say():
    for depth in (20, 110):
        convolutions = [
            name
            for name, module in build(f"cifar-resnet{depth}").network.named_modules()
            if isinstance(module, torch.nn.Conv2d) and "downsample" not in name
        ]
        assert len(convolutions) + 1 == depth  # plus one for the fully connected layer


def test_state_dict_has_the_keys_and_shapes_of_published_checkpoints():
    state = build("cifar_resnet110").network.state_dict()
    assert state["conv1.weight"].shape == (16, 3, 3, 3)
    assert state["bn1.running_mean"].shape == (16,)
    assert state["layer1.17.conv2.weight"].shape == (16, 16, 3, 3)
    assert state["layer2.0.downsample.0.weight"].shape == (32, 16, 1, 1)
    assert state["layer3.0.downsample.1.num_batches_tracked"].shape == ()
    assert state["fc.weight"].shape == (10, 64)
    assert "layer1.0.downsample.0.weight" not in state
    assert "layer1.18.conv1.weight" not in state


def test_the_module_normalises_and_the_state_dict_does_not_contain_it():
    module = build("cifar-resnet20")
    assert not [key for key in module.state_dict() if not key.startswith("network.")]
    mean = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
    assert torch.equal(module.normalize(mean), torch.zeros(3, 1, 1))


def test_resnet20_computes_the_residual_sum_and_not_only_the_branch():
    block = build("cifar-resnet20").network.layer1[1].eval()
    torch.nn.init.zeros_(block.conv2.weight)
    x = torch.rand(1, 16, 8, 8)
    assert torch.equal(block(x), x)


def test_an_unknown_name_is_an_error_that_lists_the_known_ones():
    with refused("not-one-of", name="architecture", value="resnet-9000"):
        build("resnet-9000")


@pytest.mark.parametrize(("sigma", "least"), [(0.25, 0.85), (0.5, 0.78)])
def test_bundled_weights_are_accurate_under_their_training_noise(sigma, least):
    classifier = load_classifier("fashion-cnn", sigma=sigma)
    assert classifier.trained_sigma == sigma
    images, labels = zip(*load_dataset("fashion-mnist"), strict=True)
    torch.manual_seed(0)
    noisy = torch.stack(images) + sigma * torch.randn(len(images), 1, 28, 28)
    with torch.inference_mode():
        accuracy = (
            (classifier.module(noisy).argmax(1) == torch.tensor(labels)).float().mean().item()
        )
    assert accuracy > least
