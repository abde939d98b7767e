"""Loss terms against values that were calculated by hand."""

import math
from statistics import NormalDist

import pytest
import torch
from tests.refusals import refused

from smoothcert.training import CatRs, Consistency, Macer, SmoothAdv, SmoothMix, method_named
from smoothcert.training.methods.ascent import ascend, loss_gradient
from smoothcert.training.methods.base import divergence, log_mean_probability, natural_loss
from smoothcert.training.methods.catrs import easiest_copies_loss
from smoothcert.training.methods.consistency import consistency_loss
from smoothcert.training.methods.macer import radius_loss
from smoothcert.training.methods.smoothmix import unrestricted_adversary


def logits(*copies):
    """Logits with the given probabilities, of shape (copies, 1, classes)."""
    return torch.tensor(copies).log()[:, None]


def test_natural_loss_is_the_mean_cross_entropy_over_copies():
    loss = natural_loss(logits([0.5, 0.5], [0.8, 0.2]), torch.tensor([0]))
    assert loss.item() == pytest.approx(-(math.log(0.5) + math.log(0.8)) / 2)


def test_natural_loss_pairs_each_copy_with_its_own_label():
    two_inputs = torch.tensor(
        [[[0.9, 0.1], [0.3, 0.7]], [[0.6, 0.4], [0.2, 0.8]]]
    ).log()  # (copies, batch, classes)
    loss = natural_loss(two_inputs, torch.tensor([0, 1]))
    assert loss.item() == pytest.approx(-sum(map(math.log, (0.9, 0.7, 0.6, 0.8))) / 4)


def test_consistency_loss_is_divergence_from_the_mean_plus_its_entropy():
    # F_1 = (.9, .1), F_2 = (.5, .5), mean F = (.7, .3)
    divergence = (
        0.7 * math.log(0.7 / 0.9)
        + 0.3 * math.log(0.3 / 0.1)
        + 0.7 * math.log(0.7 / 0.5)
        + 0.3 * math.log(0.3 / 0.5)
    ) / 2
    entropy = -0.7 * math.log(0.7) - 0.3 * math.log(0.3)
    loss = consistency_loss(logits([0.9, 0.1], [0.5, 0.5]), weight=20, entropy_weight=0.5)
    assert loss.item() == pytest.approx(20 * divergence + 0.5 * entropy, rel=1e-5)


def test_consistency_loss_of_equal_and_sure_copies_is_zero():
    sure = torch.tensor([100.0, 0.0, 0.0]).expand(3, 4, 3)
    assert consistency_loss(sure, weight=20, entropy_weight=0.5).item() == pytest.approx(
        0, abs=1e-6
    )


def test_mean_probability_stays_finite_where_a_softmax_underflows():
    extreme = torch.tensor([[[1000.0, 0.0]], [[0.0, 0.0]]])
    assert log_mean_probability(extreme)[0].tolist() == pytest.approx(
        [math.log(0.75), math.log(0.25)]
    )


def test_radius_loss_is_half_sigma_times_the_distance_to_the_hinge():
    # mean over copies: (.8, .15, .05)
    z = logits([0.9, 0.08, 0.02], [0.7, 0.22, 0.08])
    quantile = NormalDist().inv_cdf
    xi = quantile(0.8) - quantile(0.15)
    loss = radius_loss(z, torch.tensor([0]), sigma=0.5, inverse_temperature=1.0, hinge=8.0)
    assert loss.item() == pytest.approx(0.25 * (8 - xi), rel=1e-5)


def test_radius_loss_applies_the_inverse_temperature_before_the_mean():
    # beta = 2 squares the odds: (.8, .2) -> 16:1
    quantile = NormalDist().inv_cdf
    loss = radius_loss(
        logits([0.8, 0.2]), torch.tensor([0]), sigma=1.0, inverse_temperature=2.0, hinge=8.0
    )
    assert loss.item() == pytest.approx(0.5 * (8 - quantile(16 / 17) + quantile(1 / 17)), rel=1e-5)


def test_radius_loss_counts_only_correct_inputs_below_the_hinge():
    wrong, short, beyond = [0.2, 0.8], [0.6, 0.4], [0.999, 0.001]
    z = torch.tensor([[wrong, short, beyond]]).log().requires_grad_()
    xi = 2 * NormalDist().inv_cdf(0.6)
    loss = radius_loss(z, torch.tensor([0, 0, 0]), sigma=1.0, inverse_temperature=1.0, hinge=4.0)
    assert loss.item() == pytest.approx(0.5 * (4 - xi) / 3, rel=1e-5)
    loss.backward()
    assert [bool(row.any()) for row in z.grad[0]] == [False, True, False]


def test_radius_loss_has_finite_gradients_at_certainty():
    z = torch.tensor([[[500.0, 0.0, 0.0], [0.0, 500.0, 0.0]]], requires_grad=True)
    radius_loss(z, torch.tensor([0, 0]), sigma=0.5, inverse_temperature=16.0, hinge=8.0).backward()
    assert z.grad.isfinite().all()


class HalfSpace(torch.nn.Module):
    """Two classes. The logit of class 1 falls along the diagonal, so we know the worst direction."""

    def forward(self, x):
        score = x.flatten(1).sum(1)
        return torch.stack((score, -score), 1)


def test_attack_goes_straight_against_the_label_to_the_edge_of_the_ball():
    x = torch.full((2, 1, 4, 4), 0.5)
    noise = 0.1 * torch.randn(3, 2, 1, 4, 4)
    found = ascend(
        loss_gradient(HalfSpace(), torch.tensor([0, 1]), noise),
        x,
        epsilon=torch.tensor(0.8),
        steps=4,
    )
    assert torch.allclose(
        found[0], torch.full((1, 4, 4), 0.5 - 0.2), atol=1e-5
    )  # 0.8 over 16 equal pixels
    assert torch.allclose(found[1], torch.full((1, 4, 4), 0.5 + 0.2), atol=1e-5)


def test_attack_stays_in_the_box_and_in_the_ball():
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(27, 5))
    x = torch.rand(6, 3, 3, 3).round()  # all on the boundary of the box
    gradient = loss_gradient(module, torch.arange(6) % 5, torch.zeros(1, 6, 3, 3, 3))
    found = ascend(gradient, x, epsilon=torch.tensor(1.5), steps=5)
    assert found.min() >= 0
    assert found.max() <= 1
    assert (found - x).flatten(1).norm(dim=1).max() <= 1.5 + 1e-5
    assert (found - x).flatten(1).norm(dim=1).min() > 0.5


def test_attack_grows_to_full_size_within_the_warm_up():
    method = SmoothAdv(sigma=1e-6, epsilon=0.8, copies=1, steps=4, warmup=10)
    seen = []

    class Spy(HalfSpace):
        def forward(self, x):
            seen.append(x.detach())
            return super().forward(x)

    module = Spy()
    for epoch, size in ((0, 0.02), (4, 0.1), (50, 0.2)):
        method.objective(
            module, torch.full((1, 1, 4, 4), 0.5), torch.tensor([0]), torch.tensor(float(epoch))
        )
        assert torch.allclose(seen[-1], torch.full((1, 1, 4, 4), 0.5 - size), atol=1e-4)
    assert module.training


def test_published_constants_depend_on_the_noise():
    assert [Consistency.published(sigma).weight for sigma in (0.25, 0.5, 1.0)] == [20, 10, 10]
    assert [Macer.published(sigma).weight for sigma in (0.25, 0.5, 1.0)] == [12, 4, 12]
    assert [SmoothAdv.published(sigma).epsilon for sigma in (0.25, 0.5, 1.0)] == [1, 2, 2]
    assert method_named("consistency", sigma=0.25, weight=3.0, copies=None) == Consistency(
        0.25, weight=3.0
    )


def test_a_constant_that_a_method_does_not_have_is_an_error():
    owners = "smoothadv or smoothmix or catrs"
    with refused("not-a-constant", method="consistency", constant="epsilon", owners=owners):
        method_named("consistency", sigma=0.25, epsilon=1.0)
    with refused("too-small", name="copies", least=2):
        method_named("consistency", sigma=0.25, copies=1)
    with refused("not-between", name="sigma"):
        method_named("gaussian", sigma=-1)


def test_sigma_0_is_training_without_noise_and_only_for_the_plain_method():
    method = method_named("gaussian", sigma=0)
    x, labels = torch.rand(4, 3), torch.tensor([0, 1, 0, 1])
    module = torch.nn.Linear(3, 2)
    found = method.objective(module, x, labels, torch.tensor(0))
    assert found.loss.item() == pytest.approx(
        torch.nn.functional.cross_entropy(module(x), labels).item()
    )
    for other in ("consistency", "macer", "smoothadv"):
        with refused("not-between", name="sigma"):
            method_named(other, sigma=0)


def test_divergence_is_from_the_target_to_each_copy():
    target = torch.tensor([[0.7, 0.3]])
    found = divergence(target, logits([0.9, 0.1], [0.5, 0.5]))
    expected = [0.7 * math.log(0.7 / p) + 0.3 * math.log(0.3 / (1 - p)) for p in (0.9, 0.5)]
    assert found[:, 0].tolist() == pytest.approx(expected)


def test_the_adversary_of_smoothmix_may_leave_every_ball_and_the_box():
    x = torch.full((1, 1, 4, 4), 0.5)
    gradient = loss_gradient(HalfSpace(), torch.tensor([0]), torch.zeros(1, *x.shape))
    found = unrestricted_adversary(gradient, x, epsilon=4.0, steps=3)
    assert torch.allclose(found, torch.full_like(x, 0.5 - 1.0))  # 4 over 16 equal pixels


class Recorded(torch.nn.Module):
    """A linear classifier that keeps what it was given in training mode."""

    def __init__(self, inputs=4, classes=3):
        super().__init__()
        self.layer = torch.nn.Linear(inputs, classes)
        self.seen = []

    def forward(self, x):
        if self.training:
            self.seen.append(x.detach())
        return self.layer(x)


def test_smoothmix_trains_between_an_input_and_its_adversary():
    torch.manual_seed(0)
    module = Recorded()
    x = torch.rand(64, 4)
    labels = module(x).argmax(-1)
    labels[32:] = (labels[32:] + 1) % 3  # these are wrong
    module.seen.clear()
    method = SmoothMix(sigma=1e-9, epsilon=1e-3, weight=5.0, copies=2, steps=2)
    found = method.objective(module, x, labels, torch.tensor(0))
    clean, mixed = module.seen
    way = (mixed - clean).norm(dim=1)
    assert way.max() <= 0.5e-3 * 1.001  # lambda is at most 1/2
    assert way.std() > 0.5e-4
    # The distance is tiny, so F(x_mix) = F(x), and lambda follows from the distance.
    share = (way[:64] / 1e-3)[:, None]
    p = module.layer(x).softmax(-1)
    target = (1 - share) * p + share / 3
    kl = (target * (target / p).log()).sum(-1)
    natural = torch.nn.functional.cross_entropy(module.layer(x), labels)
    expected = natural + 5 * kl[:32].sum() / 64
    assert found.loss.item() == pytest.approx(expected.item(), rel=1e-3)


def test_a_hard_input_is_trained_on_its_easiest_copies():
    # Copies of two inputs of class 0: two of three right, and none right.
    copies = logits([0.9, 0.1], [0.2, 0.8], [0.6, 0.4])
    hopeless = logits([0.1, 0.9], [0.3, 0.7], [0.2, 0.8])
    loss, right = easiest_copies_loss(torch.cat([copies, hopeless], 1), torch.tensor([0, 0]))
    assert right.tolist() == [2, 0]
    expected = (-math.log(0.9) - math.log(0.6)) / 3 - math.log(0.3) / 3  # one copy at least
    assert loss.item() == pytest.approx(expected / 2)


def test_catrs_adds_the_worst_noise_only_where_all_copies_are_right():
    torch.manual_seed(0)
    module = Recorded(inputs=4, classes=2)
    with torch.no_grad():
        module.layer.weight.copy_(torch.tensor([[10.0, 0, 0, 0], [-10.0, 0, 0, 0]]))
        module.layer.bias.zero_()
    x = torch.zeros(2, 4)
    x[:, 0] = 1.0
    labels = torch.tensor([0, 1])  # all copies of the first are right, none of the second
    method = CatRs(sigma=1e-6, weight=2.0, epsilon=0.98, copies=2, steps=1)
    found = method.objective(module, x, labels, torch.tensor(0))
    clean, attacked = (seen.view(2, 2, 4) for seen in module.seen)
    assert (attacked - clean).norm(dim=-1).max() <= 0.98 * 1.001
    p, q = (torch.sigmoid(20 * seen[:, 0, 0].double()) for seen in (clean, attacked))
    smoothed = p.mean()
    worst = smoothed * (smoothed / q).log() + (1 - smoothed) * ((1 - smoothed) / (1 - q)).log()
    low = (-p.log().mean() - torch.sigmoid(-20 * clean[:, 1, 0].double()).log().max() / 2) / 2
    assert found.loss.item() == pytest.approx((low + 2 * worst.max() / 2).item(), rel=1e-3)
    assert module.training


def test_published_constants_of_smoothmix_and_catrs_grow_with_the_noise():
    assert [SmoothMix.published(sigma).epsilon for sigma in (0.25, 0.5, 1.0)] == [2, 4, 8]
    assert [CatRs.published(sigma).weight for sigma in (0.25, 0.5, 1.0)] == [0.5, 1, 2]
