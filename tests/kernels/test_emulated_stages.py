"""The stage kernels on the CPU, with an emulator of a GPU, which is slow for large networks."""

import emulated
import numpy as np
import pytest
import torch
from resnets import logits_of, random_network, relative_error

from smoothcert.kernels.layout import Layout, layouts
from smoothcert.kernels.stages import StageEnsemble
from smoothcert.noises.base import OUTWARD, Additive, AdditiveGrid
from smoothcert.noises.rounded_normal import thresholds

pytestmark = pytest.mark.skipif(not emulated.AVAILABLE, reason="no g++ here")

CIFAR = [Layout(16, 32, 1, 8, 1, 2), Layout(32, 16, 2, 4, 1, 2), Layout(64, 8, 4, 8, 4, 2)]
ONE_STAGE = [Layout(16, 8, 4, 4, 2, 2)]
in_both_formats = pytest.mark.parametrize(
    ("network", "dtype", "chosen"),
    [
        (random_network(), torch.bfloat16, CIFAR),
        (random_network((16,), size=8), torch.float16, ONE_STAGE),
    ],
    ids=["bfloat16", "float16"],
)


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
    x = torch.rand((count, *network.shape), generator=generator).to(
        dtype, memory_format=torch.channels_last
    )
    logits = classifier.logits(x)
    assert (
        relative_error(logits, logits_of(network, x.double(), dtype)) < 1e-3
    )  # only the order of sums differs
    assert relative_error(logits, logits_of(network, x.double())) < 1e-2
    assert torch.equal(classifier(x), logits.argmax(1))


@in_both_formats
def test_a_row_does_not_depend_on_the_others(network, dtype, chosen):
    classifier = emulated.EmulatedClassifier(network, dtype, chosen)
    x = torch.rand((5, *network.shape), generator=torch.Generator().manual_seed(0)).to(dtype)
    together = classifier.logits(x)
    assert torch.equal(classifier.logits(x.flip(0)).flip(0), together)
    assert torch.equal(classifier.logits(x[3:4]), together[3:4])


@in_both_formats
def test_a_row_with_a_value_that_is_not_finite_is_no_vote(network, dtype, chosen):
    classifier = emulated.EmulatedClassifier(network, dtype, chosen)
    x = torch.rand((3, *network.shape), generator=torch.Generator().manual_seed(0)).to(dtype)
    expected = classifier(x)
    for value in (torch.nan, torch.inf, -torch.inf):
        x[1, 2, 4, 5] = value
        assert classifier(x).tolist() == [expected[0], network.classes, expected[2]]


def test_a_row_that_overflows_in_float16_is_no_vote():
    network = random_network((16,), size=8)
    classifier = emulated.EmulatedClassifier(network, torch.float16, ONE_STAGE)
    x = torch.rand((3, *network.shape), generator=torch.Generator().manual_seed(0)).half()
    expected = classifier(x)
    x[1] *= 60_000
    assert bool(x.isfinite().all())
    assert classifier(x).tolist() == [expected[0], network.classes, expected[2]]


def test_an_ensemble_averages_logits_under_the_same_noise():
    members = [
        emulated.EmulatedClassifier(
            random_network((16,), size=8, seed=seed), torch.float16, ONE_STAGE
        )
        for seed in range(3)
    ]
    ensemble = StageEnsemble(members)
    x = torch.rand((4, 3, 8, 8), generator=torch.Generator().manual_seed(0)).half()
    mean = torch.stack([member.logits(x) for member in members]).mean(0)
    assert torch.equal(ensemble.logits(x), mean)
    assert ensemble(x).tolist() == mean.argmax(1).tolist()
    noise = {"count": 4, "seed": 7, "draw": Additive("normal", 0.5)}
    clean = x[:1].float().contiguous(memory_format=torch.channels_last)
    rows = torch.tensor([[0] * 4, [5] * 4, range(4)], dtype=torch.int32)
    noisy = torch.stack([member.noisy_logits(clean, rows, **noise) for member in members])
    assert ensemble.with_noise(clean, rows, **noise).tolist() == noisy.mean(0).argmax(1).tolist()
    x[2, 0, 0, 0] = torch.nan
    assert ensemble(x).tolist() == [
        *mean.argmax(1)[:2].tolist(),
        members[0].classes,
        mean.argmax(1)[3],
    ]


@pytest.mark.parametrize(
    ("memory_per_block", "memory"), [(232448, 233472), (166912, 167936), (101376, 102400)]
)
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
    """The normal numbers of `sampling/philox.py` in float64, and how many needed more bits."""
    element = np.arange(elements)
    words, more = philox(seed, element, sample, id, 0), philox(seed, element, sample, id, 1)
    columns, refined = [], 0
    for radius, angle in ((0, 1), (2, 3)):
        folded = np.where(words[radius] < 0, ~words[radius], words[radius])
        fraction = ((more[radius] & 0xFFFFFFFF) + 0.5) / 2**32
        u = np.where(folded < 2048, folded + fraction, folded) / 2**31
        refined += (folded < 2048).sum()
        turns = (
            (words[angle] & 0xFFFFFFFF) + 0.5
        ) / 2**32 - 1 / 8  # the first quadrant begins at -pi/4
        r, theta = np.sqrt(-2 * np.log(u)), 2 * np.pi * turns
        columns += [r * np.cos(theta), r * np.sin(theta)]
    return np.stack(columns, 1), refined


def test_the_kernels_noise_follows_its_definition_in_the_tails_too():
    refined = 0
    for sample in range(2):
        expected, refined_here = expected_numbers(2**40 + 5, 1_500_000, sample, 7)
        drawn = emulated.normal_numbers(2**40 + 5, 1_500_000, sample, 7)
        assert np.abs(drawn - expected).max() < 5e-4  # of tiny numbers, whose logarithm is near 0
        assert (np.abs(drawn).astype(float) * OUTWARD >= np.abs(expected)).all()  # never smaller
        assert np.quantile(np.abs(drawn - expected), 0.999) < 5e-6
        refined += refined_here
    assert refined > 0


def words_of(seed, elements, sample, id):
    """The 64-bit words of four numbers for each element: first words of part 0, then of part 1."""
    element = np.arange(elements)
    parts = [
        np.stack(philox(seed, element, sample, id, part), 1).astype(np.uint32) for part in (0, 1)
    ]
    return (parts[0].astype(np.uint64) << np.uint64(32)) | parts[1]


def rounded_normal(ratio, words):
    """The definition: the smallest number plus how many thresholds are at most the word.

    The sign bit of the word is flipped.
    """
    table = thresholds(ratio)
    return table.smallest + np.searchsorted(table.values, words ^ np.uint64(2**63), side="right")


RATIOS = [0.04, 0.3, 1.0, 0.12 * 255, 0.25 * 255, 0.5 * 255, 255.0, 1000.0, 5000.0]


@pytest.mark.parametrize("ratio", RATIOS)
def test_a_number_on_the_grid_is_exact_at_every_boundary_and_in_the_tails(ratio):
    draw = AdditiveGrid(ratio / 255, 1 / 255)
    ratio = draw.deviation / draw.step
    generator = np.random.default_rng(0)
    table = thresholds(ratio).values
    # The upper 32 bits of each threshold and those around it, each with the lowest bits, the
    # highest bits and the lower bits of the threshold.
    high = ((table >> np.uint64(32))[:, None] + np.arange(-3, 4).astype(np.uint64)) & np.uint64(
        0xFFFFFFFF
    )
    lower = (
        0,
        0xFFFFFFFF,
        table & np.uint64(0xFFFFFFFF),
        (table - np.uint64(1)) & np.uint64(0xFFFFFFFF),
    )
    near = [
        ((high << np.uint64(32)) | np.broadcast_to(bits, high.T.shape).T.astype(np.uint64)).ravel()
        for bits in lower
    ]
    # Words at every distance from the two ends.
    distances = generator.integers(0, 2**64, 400_000, np.uint64) >> generator.integers(
        0, 64, 400_000, np.uint64
    )
    words = np.concatenate([*near, distances, ~distances]) ^ np.uint64(2**63)
    assert np.array_equal(emulated.grid_decisions(draw, words), rounded_normal(ratio, words))


@pytest.mark.parametrize("sigma", [0.12, 0.25, 0.5, 1.0])
def test_the_kernels_noise_on_the_grid_is_that_of_its_counter(sigma):
    draw = AdditiveGrid(sigma, 1 / 255)
    drawn = emulated.grid_numbers(draw, 2**40 + 5, 300_000, 3, 7)
    assert np.array_equal(
        drawn, rounded_normal(draw.deviation / draw.step, words_of(2**40 + 5, 300_000, 3, 7))
    )
    assert abs(drawn.std() / (255 * sigma) - 1) < 0.002


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_kernel_adds_whole_steps(dtype):
    """A network that draws its noise gives the logits of inputs with the same noise."""
    network = random_network((16,), size=8, channels=3)
    classifier = emulated.EmulatedClassifier(network, dtype, [Layout(16, 8, 4, 4, 2, 2)])
    draw, size, quarter = AdditiveGrid(0.5, 1 / 255), 192, 48
    levels = torch.randint(256, (3, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    inputs = (levels / 255).to(memory_format=torch.channels_last)
    rows = torch.tensor(
        [[0, 2, 1, 1, 0], [4, 9, 6, 6, 4], [0, 5, 77, 78, 2**31 - 1]], dtype=torch.int32
    )
    noisy = torch.empty(5, 8, 8, 3)
    for row, (slot, id, sample) in enumerate(rows.T.tolist()):
        # Four numbers of an element go to the four quarters of the input.
        k = rounded_normal(draw.deviation / draw.step, words_of(11, quarter, sample, id)).T.reshape(
            size
        )
        noisy[row] = (
            levels[slot].permute(1, 2, 0) + torch.from_numpy(k).view(8, 8, 3)
        ) * np.float32(1 / 255)
    logits = torch.empty(5, network.classes)
    labels = classifier._run(inputs, rows=rows, count=5, seed=11, draw=draw, logits=logits)
    assert torch.equal(logits, classifier.logits(noisy.permute(0, 3, 1, 2).to(dtype)))
    assert torch.equal(labels, classifier.with_noise(inputs, rows, count=5, seed=11, draw=draw))
    assert list(classifier._drawing) == [
        2
    ]  # the kernel for normal noise is compiled only where it is used
    assert not torch.equal(
        labels, classifier.with_noise(inputs, rows, count=5, seed=11, draw=Additive("normal", 9.0))
    )
