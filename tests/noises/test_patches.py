"""Certificates against patches, by brute force over all patches of small pictures."""

import itertools

import numpy as np
import pytest
import torch
from tests.refusals import refused

import smoothcert as sc
from smoothcert.plans import Certificate, Look
from smoothcert.sampling.drawing import drawer_for

SIDE = 6


def _masks(noise):
    """Which pixels each outcome shows."""
    noise = noise.for_shape((1, SIDE, SIDE))
    words = torch.arange(noise.outcomes)[:, None]
    noisy = drawer_for(noise.draw, (1, SIDE, SIDE)).noisy(words, torch.zeros(1, 1, SIDE, SIDE))
    return noisy[:, 1].bool().numpy()  # 1 - x is 1 for a pixel of 0 that is shown


def _patches(side):
    for row, column in itertools.product(range(SIDE - side + 1), repeat=2):
        yield slice(row, row + side), slice(column, column + side)


def _winner(votes, classes=3):
    return int(np.argmax(np.bincount(votes, minlength=classes)))  # the smallest class wins a tie


def _certify(votes, noise):
    classes, counts = np.unique(votes, return_counts=True)
    look = Look(len(votes), dict(zip(classes.tolist(), counts.tolist(), strict=True)))
    return Certificate.from_votes([look], plan=sc.Exact().for_noise(noise), noise=noise)


@pytest.mark.parametrize("noise", [sc.Bands(1), sc.Bands(2), sc.Blocks(2), sc.Blocks(3)], ids=str)
def test_no_patch_touches_more_windows_than_the_theorem_says(noise):
    masks = _masks(noise)
    assert len(masks) == noise.for_shape((1, SIDE, SIDE)).outcomes
    assert {int(mask.sum()) for mask in masks} == {masks[0].sum()}
    for side in range(1, SIDE):
        most = max(
            int(masks[:, rows, columns].any((1, 2)).sum()) for rows, columns in _patches(side)
        )
        assert most == min(noise.touched(side), len(masks))


@pytest.mark.parametrize("noise", [sc.Bands(1), sc.Bands(2), sc.Blocks(1), sc.Blocks(2)], ids=str)
def test_an_attacker_who_rules_all_touched_windows_never_wins_within_the_radius(noise):
    bound, masks = noise.for_shape((1, SIDE, SIDE)), _masks(noise)
    rng = np.random.default_rng(0)
    attackable = 0
    for trial in range(400):
        p = rng.dirichlet([0.3, 0.3, 0.3])
        votes = rng.choice(3, len(masks), p=p)
        if trial % 4 == 0:
            votes = np.sort(votes)  # neighbouring windows agree: the worst case for a patch
        found = _certify(votes, bound)
        for side in range(1, SIDE):
            flipped = [
                np.where(masks[:, rows, columns].any((1, 2)), rival, votes)
                for rows, columns in _patches(side)
                for rival in range(3)
            ]
            changed = any(_winner(other) != _winner(votes) for other in flipped)
            if side <= found.radius:
                assert not changed
            attackable += changed and side == found.radius + 1
    assert attackable > 20  # the radius is no smaller than it has to be


@pytest.mark.parametrize(
    ("votes", "radius"), [([0] * 6, 3), ([1] * 6, 2), ([0] * 5 + [2], 2), ([2] * 5 + [0], 1)]
)
def test_ties_go_to_the_smaller_class(votes, radius):
    # A band of one column: side m needs a lead of 2 m, and one more where the rival wins a tie.
    assert _certify(np.array(votes), sc.Bands(1, 6)).radius == radius


def test_the_content_of_every_patch_is_tried_on_an_adversarial_classifier():
    """A classifier whose answer to a band is as good as random, on all pictures that differ within a 2 x 2 patch."""
    rng = np.random.default_rng(3)
    weights = torch.from_numpy(rng.integers(1, 10_007, (2, SIDE, SIDE)))

    def answers(x):
        hashed = (x.long() * weights).sum((1, 2, 3)) % 97
        return torch.where(hashed < 80, 1, torch.where(hashed < 92, 0, 2))

    pictures = rng.integers(0, 2, (30, 1, SIDE, SIDE)).astype(np.float32)
    smoothed = sc.Smoothed(
        answers, noise=sc.Bands(1), classes=3, device="cpu", dtype="float32", batch=60
    )
    results = smoothed.certify(pictures, plan=sc.Exact())
    assert np.sum(results.radius >= 2) >= 3
    for picture, certificate in zip(pictures, results, strict=True):
        side = int(min(certificate.radius, 2))
        if certificate.abstained or not side:
            continue
        changed = []
        for rows, columns in _patches(side):
            for content in itertools.product((0.0, 1.0), repeat=side * side):
                other = picture.copy()
                other[0, rows, columns] = np.reshape(content, (side, side))
                changed.append(other)
        changed = np.unique(np.array(changed), axis=0)
        assert set(smoothed.certify(changed, plan=_Votes()).prediction.tolist()) == {
            certificate.prediction
        }


class _Votes(sc.Exact):
    """The answer of the smoothed classifier without a proof: every class with most votes is certified."""

    def prove(self, state):
        return sc.Proof(state.chosen, 0.0)


def test_what_is_no_picture_is_refused():
    with refused("not-images", shape=(36,)):
        sc.Bands(2).for_shape((36,))
    with refused("block-too-large", noise=sc.Blocks(7), height=6, width=6):
        sc.Blocks(7).for_shape((1, 6, 6))
