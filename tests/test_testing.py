import pytest
from tests.refusals import refused

from smoothcert import AtRadii
from smoothcert.testing import assert_certified


def test_enough_certified_inputs_pass_and_too_few_are_named(fixed_run):
    share = fixed_run.certified_accuracy([0.5])[0]
    assert_certified(fixed_run, radius=0.5, at_least=share)
    missing = fixed_run.id[~fixed_run.certified([0.5])[:, 0]]
    with pytest.raises(AssertionError, match=rf"not certified: {missing[0]}, {missing[1]}"):
        assert_certified(fixed_run, radius=0.5)


def test_a_radius_that_was_not_decided_and_a_share_above_1_are_refused(simulate, fixed_run):
    run = simulate("radii", AtRadii([0, 0.25], samples=1_000))
    assert_certified(run, radius=0.25, at_least=0)
    with refused("undecided-radius", radius=0.3, decided="0, 0.25"):
        assert_certified(run, radius=0.3)
    with refused("not-probability", name="at_least", value=70):
        assert_certified(fixed_run, radius=0.5, at_least=70)


def test_without_labels_nothing_can_be_asserted(fixed_run, altered):
    with refused("no-labels"):
        assert_certified(altered(fixed_run, label=fixed_run.label * 0 - 1), radius=0.5)
