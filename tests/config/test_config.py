"""Defaults are the paper's; what cannot run is refused with the nearest choice."""

from dataclasses import replace
from pathlib import Path

import pytest

from rnd.api import starting_config
from rnd.config import Config, EnvConfig
from rnd.config.presets import ATARI_GAMES, DEFAULT_JOB, FAMILIES, changes, preset, small
from rnd.foundation.errors import UserError


@pytest.mark.parametrize("game", ATARI_GAMES)
def test_atari_games_start_from_the_paper(game):
    """The defaults of `Config`; tests/paper/test_recipes.py compares those with the paper's table."""
    config = preset(game)
    assert config == Config(env=EnvConfig(id=ATARI_GAMES[game]))
    assert (config.env.num_envs, config.env.frame_skip, config.env.sticky) == (128, 4, 0.25)
    assert config.env.max_episode_frames == 18_000
    assert config.bonus_options.features == 512
    assert config.bonus_options.random_steps == 128 * 50
    assert config.iterations == 30_000
    assert config.keep == 0.25
    config.validate()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_starts_from_its_tuned_values(family):
    prefixes, fields = FAMILIES[family]
    page = (Path(__file__).parents[2] / "docs/environments.md").read_text()
    for prefix in prefixes:
        assert preset(f"{prefix}v9") == replace(small(f"{prefix}v9", "choices"), **fields)
        preset(f"{prefix}v9").validate()
        assert f"`{prefix}...`" in page  # with its measured result


@pytest.mark.parametrize("env_id", ["CartPole-v1", "MountainCar-v0", "my_package:make_env"])
def test_other_tasks_start_from_the_small_run(env_id):
    assert preset(env_id) == small(env_id)
    assert preset(DEFAULT_JOB) == small(DEFAULT_JOB, "choices") == preset(DEFAULT_JOB, "numbers")


def test_small_tasks_start_with_the_bonus_of_the_evidence():
    """docs/small-tasks.md has it; Atari keeps the paper's."""
    assert {small("x", kind).bonus for kind in ("numbers", "choices", "image", "image+vector")} == {"noveld"}
    assert preset("montezuma").bonus == preset("rnd/DeepSea-20").bonus == "rnd"


def test_a_bonus_of_episodes_starts_with_returns_of_episodes():
    """And with an encoder that learns as fast as the policy. docs/bonuses.md has the evidence."""
    start = starting_config("CartPole-v1", {"bonus": "e3b"})
    assert (start.bonus, start.episodic_int, start.bonus_lr) == ("e3b", True, None)
    assert changes(start, "experiment") == {"bonus": "e3b"}
    assert changes(replace(start, episodic_int=False), "experiment") == {"bonus": "e3b", "episodic_int": False}
    other = starting_config("CartPole-v1", {"bonus": "noveld"})
    assert (other.episodic_int, other.bonus_lr) == (False, 3e-5)


def test_a_config_survives_json():
    import json

    config = replace(preset("montezuma"), seed=7, env=EnvConfig(id="x", num_envs=8))
    assert Config.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_a_config_with_an_unknown_field_names_the_nearest():
    data = Config().to_dict() | {"learning_rat": 1}
    with pytest.raises(UserError, match=r"unknown config field learning_rat"):
        Config.from_dict(data)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": -1.0}, r"--lr must be greater than 0, not -1.0; the default is 0.0001"),
        ({"lr": float("nan")}, r"--lr must be greater than 0"),
        ({"frames": 0}, r"--frames must be greater"),
        ({"gamma_ext": 1.5}, r"--gamma-ext must be between 0 and 1, not 1.5; nearest: 1"),
        ({"env": EnvConfig(num_envs=0)}, r"--env.num-envs must be greater than 0"),
        (
            {"env": EnvConfig(num_envs=30)},
            r"30 environments do not divide into 4 minibatches; nearest: --env.num-envs 32",
        ),
        ({"env": EnvConfig(num_envs=1)}, r"nearest: --env.num-envs 4"),
        ({"ext_coef": 0.0, "int_coef": 0.0}, r"both reward streams are switched off"),
        ({"ext_coef": 0.0, "bonus": "none"}, r"both reward streams are switched off"),
        ({"device": "cude"}, r"unknown device 'cude'; nearest: cuda"),
        ({"device": "gpu"}, r"unknown device 'gpu'; nearest: cuda"),
        ({"value_heads": 1}, r"--episodic-int"),
        ({"train_ext_value": False}, r"--no-train-ext-value needs --ext-coef 0 and two value heads"),
        ({"bonus_half_life": 9.0, "bonus_scale": 1.0}, r"--bonus-scale replaces; leave one out"),
        ({"seed": 2**64}, r"--seed must be at most 18446744073709551615"),
        ({"threads": -1}, r"--threads must be greater than 0, not -1; leave it out"),
        ({"env": EnvConfig(id="CartPole-v1", num_envs=8)}, r"--env.frame-skip is for Atari.*nearest: 1"),
    ],
)
def test_what_cannot_run_is_refused(changes, message):
    with pytest.raises(UserError, match=message):
        replace(preset(DEFAULT_JOB), **changes).validate()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"overlap": "yes"}, "config field overlap is 'yes', which is no bool"),
        ({"frames": 1e6}, "config field frames is 1000000.0, which is no"),
        ({"lr": "0.1"}, "config field lr is '0.1', which is no"),
        ({"epochs": True}, "config field epochs is True, which is no"),
        ({"bonus": None}, "config field bonus is None, which is no str"),
        ({"precision": "tf16"}, "config field precision is 'tf16', which is no"),
        ({"env": {"num_envs": [8]}}, r"config field env\.num_envs is \[8\], which is no"),
    ],
)
def test_values_of_another_type_in_a_file_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        Config.from_dict(preset(DEFAULT_JOB).to_dict() | changes)
