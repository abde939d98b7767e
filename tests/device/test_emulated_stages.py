"""The stage kernels, compiled for the CPU with an emulator of a GPU. Slow for large networks, exact for small ones."""

import emulated
import numpy as np
import pytest
import torch
from resnets import random_network, relative_error

from smoothcert.device.resnet.layout import Layout, layouts

pytestmark = pytest.mark.skipif(not emulated.AVAILABLE, reason="no g++ here")

CIFAR = [Layout(16, 32, 1, 8, 1, 2), Layout(32, 16, 2, 4, 1, 2), Layout(64, 8, 4, 8, 4, 2)]


@pytest.mark.parametrize(
    ("network", "dtype", "chosen", "count"),
    [
        (random_network(), torch.bfloat16, CIFAR, 3),
        (
            random_network(seed=1),
            torch.float16,
            [Layout(16, 32, 2, 8, 1, 1), Layout(32, 16, 1, 8, 2, 2), Layout(64, 8, 2, 4, 2, 2)],
            5,
        ),
        (
            random_network((32, 48), blocks=2, size=16, channels=1, classes=37),
            torch.bfloat16,
            [Layout(32, 16, 1, 4, 1, 2), Layout(48, 8, 2, 8, 2, 2)],
            3,
        ),
        (
            random_network((16,), blocks=2, size=8, channels=4, classes=3),
            torch.bfloat16,
            [Layout(16, 8, 4, 4, 2, 2)],
            6,
        ),
    ],
    ids=["CIFAR", "float16", "other widths", "one stage"],
)
def test_the_kernel_computes_the_network(network, dtype, chosen, count):
    classifier = emulated.EmulatedClassifier(network, dtype, chosen)
    generator = torch.Generator().manual_seed(2)
    x = torch.rand((count, *network.shape), generator=generator).to(dtype, memory_format=torch.channels_last)
    logits = classifier.logits(x)
    assert relative_error(logits, network.logits(x.double(), dtype)) < 1e-3  # only the order of sums differs
    assert relative_error(logits, network.logits(x.double())) < 1e-2
    assert torch.equal(classifier(x), logits.argmax(1))


def test_a_row_does_not_depend_on_the_others():
    network = random_network()
    classifier = emulated.EmulatedClassifier(network, torch.bfloat16, CIFAR)
    x = torch.rand((5, *network.shape), generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    together = classifier.logits(x)
    assert torch.equal(classifier.logits(x.flip(0)).flip(0), together)
    assert torch.equal(classifier.logits(x[3:4]), together[3:4])


def test_a_row_with_a_value_that_is_not_finite_is_no_vote():
    network = random_network()
    classifier = emulated.EmulatedClassifier(network, torch.bfloat16, CIFAR)
    x = torch.rand((3, *network.shape), generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    expected = classifier(x)
    for value in (torch.nan, torch.inf, -torch.inf):
        x[1, 2, 16, 5] = value
        assert classifier(x).tolist() == [expected[0], network.classes, expected[2]]


@pytest.mark.parametrize(("memory_per_block", "memory"), [(232448, 233472), (166912, 167936), (101376, 102400)])
@pytest.mark.parametrize(("channels", "size"), [(16, 32), (32, 16), (64, 8)])
def test_the_stages_of_a_cifar_resnet_fit_on_every_device(channels, size, memory_per_block, memory):
    layout = layouts(channels, size, memory_per_block, memory)[0]
    assert layout.shared_memory <= memory_per_block
    assert layout.threads in (128, 256, 512)


def test_a_stage_that_is_too_large_has_no_layout():
    assert layouts(64, 32, 232448, 233472) == []
    assert layouts(24, 32, 232448, 233472) == []


def philox(seed, element, sample, id, part):
    """Philox-4x32-10 in NumPy, for an array of elements."""
    counter = [np.broadcast_to(np.uint64(word), element.shape) for word in (0, sample, id, part)]
    counter[0] = element.astype(np.uint64)
    keys, low, shift = [seed & 0xFFFFFFFF, seed >> 32], np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * counter[0], np.uint64(0xCD9E8D57) * counter[2]
        k0, k1 = (np.uint64(key) for key in keys)
        counter = [(b >> shift) ^ counter[1] ^ k0, b & low, (a >> shift) ^ counter[3] ^ k1, a & low]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return [word.astype(np.uint32).view(np.int32).astype(np.int64) for word in counter]


def expected_numbers(seed, elements, sample, id):
    """The normal numbers of `sampler/philox.py` in float64, and how many needed more bits."""
    element = np.arange(elements)
    words, more = philox(seed, element, sample, id, 0), philox(seed, element, sample, id, 1)
    columns, refined = [], 0
    for radius, angle in ((0, 1), (2, 3)):
        folded = [np.where(word < 0, ~word, word) for word in (words[radius], words[angle])]
        fraction = ((more[radius] & 0xFFFFFFFF) + 0.5) / 2**32
        u = np.where(folded[0] < 2048, folded[0] + fraction, folded[0]) / 2**31
        refined += (folded[0] < 2048).sum()
        r, theta = np.sqrt(-2 * np.log(u)), 2 * np.pi * folded[1] / 2**31
        columns += [r * np.cos(theta), r * np.sin(theta)]
    return np.stack(columns, 1), refined


def test_the_kernels_noise_follows_its_definition_in_the_tails_too():
    refined = 0
    for sample in range(2):
        expected, found = expected_numbers(2**40 + 5, 1_500_000, sample, 7)
        drawn = emulated.normal_numbers(2**40 + 5, 1_500_000, sample, 7)
        assert np.abs(drawn - expected).max() < 3e-4  # of tiny numbers, whose logarithm is near 0
        assert np.quantile(np.abs(drawn - expected), 0.999) < 2e-6
        refined += found
    assert refined > 0
