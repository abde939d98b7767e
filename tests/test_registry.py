"""Test that plans and noises of the user are recorded by name and found again."""

import importlib
import json
import subprocess
import sys
from dataclasses import dataclass, field

import pytest
from tests.refusals import refused
from tests.users_code import forget

from smoothcert import Combined, Fixed, Gaussian, InputSpecific, InvalidInput, Noise, certify
from smoothcert._registry import (
    by_name,
    check_recordable,
    check_settings,
    describe,
    differences,
    restore,
)
from smoothcert._user_errors import import_users_module
from smoothcert.plans import Rule

MODULE = """
from dataclasses import dataclass
from typing import ClassVar

from smoothcert import Additive, Noise, Plan, Proof
from smoothcert.statistics.bounds import lower_bound


@dataclass(frozen=True)
class Halves(Plan):
    samples: int = 400
    pilot: int = 100
    alpha: float = 0.01
    shares: tuple[float, ...] = (0.5, 0.5)
    partner: Plan | None = None
    name: ClassVar[str] = "halves"

    def request(self, state):
        half = self.samples // 2
        return [self.pilot, half, half, 0][state.look]

    def prove(self, state):
        lower = lower_bound(state.count, max(state.drawn, 1), alpha=self.alpha / 2)
        return Proof.from_bounds(state, lower)

    def __str__(self):
        return f"halves {self.samples}"


@dataclass(frozen=True)
class Flat(Noise):
    half_width: float
    norm: ClassVar[str] = "l1"

    @property
    def draw(self):
        return Additive("uniform", self.half_width)

    @property
    def deviation(self):
        return self.half_width / 3**0.5

    def radius(self, p):
        return 2 * self.half_width * (p - 0.5)

    def probability(self, radius):
        return radius / (2 * self.half_width) + 0.5
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of the user on the import path."""
    (tmp_path / "users_own.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("users_own")
    forget("users_own")


@pytest.mark.parametrize(
    "config",
    [
        Gaussian(0.5),
        Fixed(1_000, known_labels=True),
        InputSpecific(1_000, kind="relative", pilot_use="reuse"),
        Combined((Fixed(1_000), InputSpecific(2_000, decline=0.1))),
    ],
    ids=str,
)
def test_our_own_come_back_from_json_and_name_no_module(config):
    described = describe(config)
    assert restore(json.loads(json.dumps(described))) == config
    assert "module" not in described
    assert "file" not in described


def test_a_users_plan_and_noise_come_back_from_json(own):
    for config in (
        own.Halves(),
        own.Halves(600, shares=(0.25, 0.75), partner=Fixed(1_000)),
        own.Flat(0.5),
        Combined((own.Halves(), Fixed(1_000))),
    ):
        described = json.loads(json.dumps(describe(config)))
        assert restore(described) == config
        check_recordable(config)
    described = describe(own.Flat(0.5))
    assert (described["name"], described["module"], described["half_width"]) == (
        "Flat",
        "users_own",
        0.5,
    )
    assert described["file"] == own.__file__


def test_a_users_module_is_named_with_its_file_and_not_imported_because_a_record_names_it(own):
    described = describe(own.Halves(600))
    forget("users_own")
    with refused("not-imported", name="Halves", module="users_own") as raised:
        restore(described)
    assert described["file"] in raised.value.fields["file"]
    assert str(raised.value).endswith("import it first")
    assert "users_own" not in sys.modules
    import_users_module("users_own")
    assert str(restore(described)) == "halves 600"


def test_a_module_that_no_longer_has_the_class_says_what_it_has(own):
    with refused("unknown-class", name="Thirds", known="Flat, Halves"):
        restore({"name": "Thirds", "module": "users_own"})


def test_a_record_never_makes_us_run_a_file(tmp_path, monkeypatch):
    """A run may come from somebody else, so code that it names is reported but never executed."""
    monkeypatch.syspath_prepend(tmp_path)
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n" + MODULE)
    for module in ("trap", str(trap), str(tmp_path / "trap"), "../trap", "trap.py"):
        with refused("not-imported", module=module):
            restore({"name": "Halves", "module": module, "file": str(trap), "samples": 10})
    assert not (tmp_path / "sprung").exists()


def test_a_record_restores_nothing_but_plans_and_noises():
    for description, code in (
        ({"name": "Popen", "module": "subprocess", "args": "true"}, "not-imported"),
        ({"name": "system", "module": "os"}, "not-imported"),
        ({"name": "Manifest"}, "unknown-class"),
    ):
        with refused(code, name=description["name"]):
            restore(description)


@pytest.mark.parametrize(
    ("description", "code"),
    [
        ({"name": "Sequential", "samples": 10}, "unknown-class"),
        ({"name": "Fixed", "samples": 10, "pace": 2}, "other-configuration"),
    ],
)
def test_a_plan_of_a_later_version_is_refused(description, code):
    with refused(code, name=description["name"]):
        restore(description)


# --- objects that cannot be recorded


class Undecorated(Noise):
    norm = "l2"
    draw = property(lambda self: Gaussian(0.5).draw)
    deviation = 0.5

    def radius(self, p):
        return p

    def probability(self, radius):
        return radius


@dataclass(frozen=True)
class Callback(Fixed):
    """A plan with a field that JSON cannot represent."""

    when: object = field(default=print, kw_only=True)


@dataclass(frozen=True)
class Forgetful(Fixed):
    """A plan that its fields do not describe completely."""

    mood: str = "good"

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "mood", self.mood + "!")


def local_noise():
    @dataclass(frozen=True)
    class Local(Gaussian):
        pass

    return Local(0.5)


UNRECORDABLE = [
    (Undecorated(), "not-dataclass", {"kind": "Undecorated"}),
    (local_noise(), "local-class", {"kind": "Local"}),
    (
        Callback(1_000),
        "field-not-recordable",
        {"kind": "Callback", "field": "when", "type": "builtin_function_or_method"},
    ),
    (Forgetful(1_000), "not-recordable", {}),
]


@pytest.mark.parametrize(
    ("config", "code", "fields"), UNRECORDABLE, ids=lambda value: str(value)[:20]
)
def test_what_could_not_be_read_again_is_refused_before_anything_is_written(
    tmp_path, config, code, fields
):
    given = (
        {"noise": config} if isinstance(config, Noise) else {"noise": Gaussian(0.5), "plan": config}
    )
    with refused(code, **fields):
        certify(
            lambda x: x[:, :2],
            [([0.5, 0.5], 0)],
            classes=2,
            device="cpu",
            batch=10,
            out=tmp_path / "run",
            **given,
        )
    assert not (tmp_path / "run").exists()


# --- modules that the user names


def test_no_class_of_the_user_hides_behind_the_name_of_a_built_in_one(own):
    assert by_name([("fixed", Fixed), ("halves", own.Halves)])["halves"] is own.Halves
    for classes in ([Fixed, own.Halves], [own.Halves, Fixed]):
        with refused("name-taken", kind="Halves", name="fixed"):
            by_name(("fixed", cls) for cls in classes)


@pytest.mark.parametrize("kind", ["file", "module"])
def test_a_user_may_name_a_file_or_a_module(tmp_path, monkeypatch, kind):
    name = f"named_{kind}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    if kind == "module":
        monkeypatch.syspath_prepend(tmp_path)
    try:
        import_users_module(str(tmp_path / f"{name}.py") if kind == "file" else name)
        assert restore({"name": "Flat", "module": name, "half_width": 0.5}).half_width == 0.5
    finally:
        forget(name)


def test_a_class_of_a_script_is_recorded_under_the_scripts_name(tmp_path):
    """`python mine.py` names its module __main__. A reader of the run imports `mine`."""
    (tmp_path / "mine.py").write_text(
        MODULE
        + "\nif __name__ == '__main__':\n"
        + "    import json\n"
        + "    from smoothcert._registry import check_recordable, describe\n"
        + "    check_recordable(Halves(600))\n"
        + "    print(json.dumps(describe(Halves(600))))\n"
    )
    done = subprocess.run(
        [sys.executable, tmp_path / "mine.py"], capture_output=True, text=True, check=True
    )
    described = json.loads(done.stdout)
    assert (described["name"], described["module"]) == ("Halves", "mine")


def test_every_plan_and_noise_of_ours_can_be_recorded_by_its_name():
    from smoothcert import _registry

    ours = {name: cls for (home, name), cls in _registry._REGISTERED.items() if home is None}
    assert {"Fixed", "InputSpecific", "Combined", "Gaussian"} <= set(ours)
    training = {cls for cls in ours.values() if cls.__module__.startswith("smoothcert.training")}
    assert all(issubclass(cls, Rule | Noise) for cls in ours.values() if cls not in training)


# --- how two records differ


def test_equal_settings_differ_in_nothing():
    settings = {"seed": 1, "plan": {"name": "Fixed", "samples": 10}}
    assert differences(settings, {"plan": {"samples": 10, "name": "Fixed"}, "seed": 1}) == []
    check_settings("runs/a", differences(settings, dict(settings)), what="run")


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


def test_a_record_without_a_name_is_shown_as_it_is():
    [difference] = differences({"budget": None}, {"budget": {"samples": 5}})
    assert difference == "budget (there the default, now {'samples': 5})"


def test_of_plans_with_other_settings_the_shared_ones_that_differ_are_named():
    there, now = (
        {"plan": {"name": "Fixed", "pilot": 1}},
        {"plan": {"name": "InputSpecific", "pilot": 1, "decline": 2}},
    )
    assert differences(there, now) == ["plan.name (there Fixed, now InputSpecific)"]
    assert differences({"plan": {"a": 1}}, {"plan": {"b": 1}}) == [
        "plan.b (there the default, now 1)",
        "plan.a (there 1, now the default)",
    ]


def test_long_values_and_hashes_are_shortened():
    [long, hashed] = differences(
        {"ids": list(range(500)), "hash": "a" * 64}, {"ids": [1], "hash": "b" * 64}
    )
    assert len(long) < 160
    assert "..." in long
    assert hashed == "hash (there aaaaaaaa..., now bbbbbbbb...)"


def test_the_error_names_the_folder_what_it_holds_and_what_to_do():
    with pytest.raises(InvalidInput) as caught:
        check_settings(
            "models/a",
            differences({"seed": 1, "epochs": 3}, {"seed": 2, "epochs": 4}),
            what="training",
        )
    assert str(caught.value) == (
        "models/a holds another training: it differs in seed (there 1, now 2); epochs (there 3, now 4); "
        "choose another out=DIR"
    )
