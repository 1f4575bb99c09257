"""Which fields a sweep searches, and which values."""

from dataclasses import replace

import pytest

from rnd import cli
from rnd.api import starting_config
from rnd.config import Config
from rnd.config.components import resolve
from rnd.config.presets import preset
from rnd.foundation.errors import UserError
from rnd.sweep.space import DEFAULT, RANGES, Between, OneOf, Times, space_of, start_value, with_values

SMALL = resolve(replace(preset("CartPole-v1"), bonus="rnd"))


@pytest.mark.parametrize("config", [SMALL, resolve(preset("montezuma")), resolve(preset("MiniGrid-Empty-5x5-v0"))])
def test_the_start_is_within_every_range(config):
    names = [name for name, values in RANGES.items() if name in config.flat() and values != Times(0)]
    for name, values in space_of(config, names).items():
        start = start_value(config, name)
        inside = values.low <= start <= values.high if isinstance(values, Between) else start in values.values
        assert inside, name
        assert with_values(config, {name: start}).flat()[name] == start
    assert {*RANGES} <= {*resolve(replace(SMALL, policy="mlp")).flat()}


def test_ranges_of_ones_own():
    found = space_of(
        SMALL, ["lr=1e-2..0.1", "epochs=2,3", "bonus=rnd,none", "max-grad-norm=none,1", "minibatches=1..4"]
    )
    assert found == {
        "lr": Between(0.001, 0.1),  # with the value that it starts from
        "epochs": OneOf((2, 3, 4)),
        "bonus": OneOf(("rnd", "none")),
        "max_grad_norm": OneOf((None, 1)),
        "minibatches": Between(1, 4),
    }
    # whole numbers, of a field that takes others too
    rate = space_of(replace(SMALL, ext_coef=2), ["ext_coef=1..3"])["ext_coef"]
    assert isinstance(rate.low, float) and isinstance(rate.high, float)
    assert isinstance(found["minibatches"].low, int)
    assert [str(values) for values in found.values()] == ["0.001..0.1", "2,3,4", "rnd,none", "None,1", "1..4"]


def test_what_has_no_effect_is_not_searched():
    assert [*space_of(SMALL, [])] == [*DEFAULT]
    assert [*space_of(replace(SMALL, bonus="none"), [])] == ["lr", "entropy_coef", "gamma_ext"]
    assert space_of(replace(SMALL, bonus_lr=None), ["bonus_lr"]) == {"bonus_lr": Between(1e-4, 1e-2)}  # around --lr


def test_another_bonus_gets_its_own_options():
    config = resolve(replace(SMALL, bonus="noveld"))
    assert config.flat()["bonus_options.memory"] == 4500
    other = with_values(config, {"bonus": "count", "bonus_options.features": 32})
    assert other == resolve(replace(SMALL, bonus="count", bonus_options=replace(SMALL.bonus_options, features=32)))


def test_another_bonus_is_judged_with_what_it_brings():
    """As `--bonus e3b`; and without it again."""
    start = starting_config("CartPole-v1", {})
    for name in ("e3b", "rnd"):
        other = with_values(start, {"bonus": name})
        assert other == starting_config("CartPole-v1", {"bonus": name})
        assert with_values(other, {"bonus": start.bonus}) == start
    assert with_values(start, {"bonus": "e3b", "episodic_int": False}).episodic_int is False


@pytest.mark.parametrize(
    ("over", "hint"),
    [
        ("lrr", "nearest: lr"),
        ("CartPole-v1", "the game stands before --over"),
        ("my_module:make", "the game stands before --over"),
        ("bonus-lrr=1,2", "--over 'bonus-lrr': no field that can be searched; nearest: bonus_lr"),
        ("frames", "no field that can be searched"),
        ("device", "no field that can be searched"),
        ("bonus_options.clip", "write bonus_options.clip=LOW..HIGH"),
        ("lr=3..1", "is no range"),
        ("lr=a..b", "is no range"),
        ("lr=1", "two or more different values"),
        ("lr=-1..1", "--lr must be greater than 0"),
        ("epochs=1,x", "epochs is 'x'"),
        ("bonus=rnd,rdn", "nearest: rnd"),
        ("minibatches=1,3", "do not divide"),
        ("normalize_obs=0..1", "write normalize_obs=A,B,C"),
    ],
)
def test_fields_that_cannot_be_searched_are_one_line(over, hint):
    with pytest.raises(UserError) as refused:
        space_of(SMALL, [over])
    assert hint.lower() in str(refused.value).lower()
    with pytest.raises(UserError, match="names lr twice"):
        space_of(SMALL, ["lr", "lr=1e-3..1"])
    with pytest.raises(UserError, match="it starts with 0"):
        space_of(replace(SMALL, int_coef=0.0), ["int_coef"])


def test_several_values_of_a_flag_are_no_names():
    arguments = ["--over", "lr", "epochs=1,2", "--trials", "3"]
    from rnd.commands.sweep import Flags

    assert cli.positionals(Flags, arguments := ["CartPole-v1", *arguments]) == ["CartPole-v1"]
    assert arguments == ["--over", "lr", "epochs=1,2", "--trials", "3"]
    assert isinstance(Flags(), Config)
