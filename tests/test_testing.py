import pytest
from tests.refusals import refused

from smoothcert.testing import assert_certified


def test_enough_certified_inputs_pass_and_too_few_are_named(fixed_run):
    share = fixed_run.certified_accuracy([0.5])[0]
    assert_certified(fixed_run, radius=0.5, at_least=share)
    missing = fixed_run.id[~fixed_run.certified([0.5])[:, 0]]
    with pytest.raises(AssertionError, match=rf"not certified: {missing[0]}, {missing[1]}"):
        assert_certified(fixed_run, radius=0.5)


def test_without_labels_nothing_can_be_asserted(fixed_run, altered):
    with refused("no-labels"):
        assert_certified(altered(fixed_run, label=fixed_run.label * 0 - 1), radius=0.5)
