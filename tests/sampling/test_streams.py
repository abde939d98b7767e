import numpy as np
import pytest
from scipy.stats import binomtest, chi2_contingency, kstest, laplace, norm, uniform
from tests.refusals import refused

from smoothcert.noises import Additive

IDS, SAMPLES, ELEMENTS = 16, 20, 24_000


@pytest.fixture(scope="module")
def noise(draw):
    """7.7 million numbers: inputs x samples x elements."""
    drawn = draw(*((id, 0, SAMPLES) for id in range(IDS)), shape=(ELEMENTS,), seed=3)
    return drawn.reshape(IDS, SAMPLES, ELEMENTS)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (7,), (3, 5, 5), (2, 3, 2, 3)])
def test_a_row_is_a_function_of_seed_input_and_sample(draw, shape):
    whole = draw((5, 0, 8), shape=shape, seed=9)
    assert whole.shape == (8, *shape)
    assert np.isfinite(whole).all()
    packed = draw(
        (8, 3, 1), (5, 5, 3), (0, 0, 1), (5, 0, 1), (5, 2, 2), shape=shape, seed=9, batch=11
    )
    np.testing.assert_array_equal(packed[1:4], whole[5:8])
    np.testing.assert_array_equal(packed[5], whole[0])
    np.testing.assert_array_equal(packed[6:8], whole[2:4])


def test_fewer_samples_are_a_prefix_of_more(draw):
    np.testing.assert_array_equal(draw((2, 0, 5)), draw((2, 0, 20))[:5])


def test_another_seed_input_or_sample_is_other_noise(draw):
    rows = [
        draw((0, 0, 5), (1, 0, 5), (2**20, 0, 5), shape=(4,), seed=seed)
        for seed in (0, 1, 2**32, 2**32 + 1)
    ]
    assert len(np.unique(np.concatenate(rows), axis=0)) == 4 * 15


def test_noise_has_the_moments_of_a_normal_variable(noise):
    z = noise.ravel().astype(float)
    for power, expected in ((1, 0), (2, 1), (3, 0), (4, 3)):
        values = z**power
        assert abs(values.mean() - expected) < 4.5 * values.std() / np.sqrt(len(z))
    assert kstest(z[:200_000], norm.cdf).pvalue > 1e-4


@pytest.mark.parametrize("sigmas", [1, 2, 3, 4, 4.5, 5])
def test_tails_are_normal_up_to_five_sigma(noise, sigmas):
    for beyond in (noise > sigmas, noise < -sigmas):
        assert binomtest(int(beyond.sum()), noise.size, norm.sf(sigmas)).pvalue > 1e-4
    assert np.abs(noise).max() < 6


PAIRS = {
    "neighbouring inputs": lambda z: (z[:-1], z[1:]),
    "distant inputs": lambda z: (z[: IDS // 2], z[IDS // 2 :]),
    "neighbouring samples": lambda z: (z[:, :-1], z[:, 1:]),
    "distant samples": lambda z: (z[:, : SAMPLES // 2], z[:, SAMPLES // 2 :]),
    "neighbouring elements": lambda z: (z[..., :-1], z[..., 1:]),
    "elements of one counter": lambda z: (z[..., : ELEMENTS // 2], z[..., ELEMENTS // 2 :]),
    "quarters": lambda z: (z[..., : ELEMENTS // 4], z[..., ELEMENTS // 4 : ELEMENTS // 2]),
    "input and sample exchanged": lambda z: (z[:, :IDS], z[:, :IDS].swapaxes(0, 1)[:, ::-1]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_noise_is_independent_between(noise, name):
    a, b = (part.reshape(-1)[:2_000_000].astype(float) for part in PAIRS[name](noise))
    for f in (lambda z: z, np.square, np.abs):
        assert abs(np.corrcoef(f(a), f(b))[0, 1]) * np.sqrt(len(a)) < 4.5
    cells = np.histogram2d(norm.cdf(a), norm.cdf(b), bins=8, range=[[0, 1], [0, 1]])[0]
    assert chi2_contingency(cells).pvalue > 1e-4


def test_seeds_that_differ_give_independent_noise(draw):
    a, b = (draw((0, 0, 20), shape=(10_000,), seed=seed).ravel() for seed in (3, 4))
    assert abs(np.corrcoef(a, b)[0, 1]) * np.sqrt(len(a)) < 4.5


LAWS = {"normal": norm(), "uniform": uniform(-1, 2), "laplace": laplace()}


@pytest.mark.parametrize("law", ["normal", "uniform", "laplace"])
def test_float64_inputs_are_not_rounded_where_the_classifier_is_in_float64(draw, law):
    plain = draw((1, 0, 5), law=law)
    noisy = draw((1, 0, 5), law=law, x=1.7e9 + 60, dtype="float64")
    np.testing.assert_allclose(noisy - (1.7e9 + 60), plain, atol=1e-6)


@pytest.mark.parametrize("law", LAWS)
def test_noise_has_the_law_that_was_asked_for(draw, law):
    z = (
        draw(*((id, 0, 10) for id in range(4)), shape=(10_000,), seed=3, law=law)
        .ravel()
        .astype(float)
    )
    expected = LAWS[law]
    assert kstest(z, expected.cdf).pvalue > 1e-4
    for power in (1, 2, 3, 4):
        values = z**power
        assert abs(values.mean() - expected.moment(power)) < 4.5 * values.std() / np.sqrt(len(z))
    for other in LAWS.values():
        assert other is expected or kstest(z, other.cdf).pvalue < 1e-100


@pytest.mark.parametrize("law", ["uniform", "laplace"])
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5, 5)])
def test_other_laws_are_keyed_by_seed_input_and_sample(draw, law, shape):
    whole = draw((5, 0, 8), shape=shape, seed=9, law=law)
    packed = draw((8, 3, 1), (5, 5, 3), (5, 0, 1), shape=shape, seed=9, batch=7, law=law)
    np.testing.assert_array_equal(packed[1:4], whole[5:8])
    np.testing.assert_array_equal(packed[4], whole[0])
    others = [
        draw((6, 0, 8), shape=shape, seed=9, law=law),
        draw((5, 0, 8), shape=shape, seed=10, law=law),
    ]
    assert all(np.abs(other - whole).min() > 0 for other in others)


@pytest.mark.parametrize("law", LAWS)
def test_every_law_is_scaled_and_added_to_the_input(draw, law):
    plain = draw((1, 0, 5), law=law)
    np.testing.assert_allclose(
        draw((1, 0, 5), scale=0.25, x=0.5, law=law), 0.5 + 0.25 * plain, atol=1e-6
    )
    np.testing.assert_allclose(draw((1, 0, 5), law=law, dtype="bfloat16"), plain, rtol=2**-7)


def test_uniform_noise_never_leaves_its_cube_and_laplace_noise_has_its_tails(draw):
    segments = [(id, 0, 10) for id in range(4)]
    flat = draw(*segments, shape=(20_000,), seed=3, law="uniform", scale=0.5)
    assert np.abs(flat).max() <= 0.5
    heavy = draw(*segments, shape=(20_000,), seed=3, law="laplace")
    for beyond in (2, 5, 9):
        assert (
            binomtest(
                int((np.abs(heavy) > beyond).sum()), heavy.size, 2 * laplace.sf(beyond)
            ).pvalue
            > 1e-4
        )
    assert np.isfinite(heavy).all()


def test_a_law_that_no_stream_draws_is_refused():
    with refused("not-one-of", name="law", value="cauchy", allowed="normal, uniform, laplace"):
        Additive("cauchy", 1.0)
