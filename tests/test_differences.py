import pytest

from smoothcert._differences import check_settings, differences
from smoothcert.errors import InvalidInput


def test_equal_settings_differ_in_nothing():
    settings = {"seed": 1, "plan": {"name": "Fixed", "samples": 10}}
    assert differences(settings, {"plan": {"samples": 10, "name": "Fixed"}, "seed": 1}) == []
    check_settings("runs/a", settings, dict(settings), what="run")


def test_every_difference_is_named_once_with_both_values():
    there = {"seed": 1, "plan": {"name": "Fixed", "samples": 10, "alpha": 0.1}, "gone": 3}
    now = {"seed": 2, "plan": {"name": "Fixed", "samples": 20, "alpha": 0.2}, "new": 4}
    assert sorted(differences(there, now)) == [
        "gone (there 3, now the default)",
        "new (there the default, now 4)",
        "plan.alpha (there 0.1, now 0.2)",
        "plan.samples (there 10, now 20)",
        "seed (there 1, now 2)",
    ]


def test_of_plans_with_other_settings_the_shared_ones_that_differ_are_named():
    there, now = {"plan": {"name": "Fixed", "pilot": 1}}, {"plan": {"name": "InputSpecific", "pilot": 1, "decline": 2}}
    assert differences(there, now) == ["plan.name (there Fixed, now InputSpecific)"]
    assert differences({"plan": {"a": 1}}, {"plan": {"b": 1}}) == [
        "plan.b (there the default, now 1)",
        "plan.a (there 1, now the default)",
    ]


def test_long_values_and_hashes_are_shortened():
    [long, hashed] = differences({"ids": list(range(500)), "hash": "a" * 64}, {"ids": [1], "hash": "b" * 64})
    assert len(long) < 160
    assert "..." in long
    assert hashed == "hash (there aaaaaaaa..., now bbbbbbbb...)"


def test_the_error_names_the_folder_what_it_holds_and_what_to_do():
    with pytest.raises(InvalidInput) as caught:
        check_settings("models/a", {"seed": 1, "epochs": 3}, {"seed": 2, "epochs": 4}, what="training")
    assert str(caught.value) == (
        "models/a holds another training: it differs in seed (there 1, now 2); epochs (there 3, now 4); "
        "choose another out=DIR"
    )
