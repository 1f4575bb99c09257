"""Every experiment against the table of the paper's experiments, field by field.

The whole config is compared: a field that an arm does not change must have the paper's default.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from rnd.config import BonusOptions, CheckpointConfig, Config, EnvConfig
from rnd.config.presets import preset
from rnd.paper.experiments import EXPERIMENTS, TABLE1, bonuses, efficiency

BILLION = 10**9

PAPER = {
    "frames": 1_966_080_000,
    "rollout_steps": 128,
    "epochs": 4,
    "minibatches": 4,
    "lr": 0.0001,
    "gamma_ext": 0.999,
    "gamma_int": 0.99,
    "gae_lambda": 0.95,
    "ext_coef": 2.0,
    "int_coef": 1.0,
    "clip_range": 0.1,
    "entropy_coef": 0.001,
    "value_coef": 0.5,
    "episodic_int": False,
    "value_heads": 2,
    "clip_reward": True,
    "bootstrap_truncated": False,
    "bonus": "rnd",
    "policy": "cnn",
}
"""Table 5 of the paper's appendix; the other values are from its text."""

ENV = {"id": "ALE/MontezumaRevenge-v5", "num_envs": 128, "frame_skip": 4, "sticky": 0.25, "max_episode_frames": 18_000}


def expected(env=None, **changes):
    """A config written out in full: nothing is taken from the experiments or the presets."""
    return Config(
        env=EnvConfig(**(ENV | (env or {}))),
        bonus_options=BonusOptions(features=512, keep=None, clip=5.0, random_steps=6_400),
        checkpoint=CheckpointConfig(),
        **(PAPER | changes),
    )


def arms(name):
    return {arm.name: arm.config for arm in EXPERIMENTS[name]().arms}


def test_all_figures_are_there():
    figures = {"figure1", *(f"figure{n}" for n in range(3, 10)), "figure3-release", "table1"}
    assert set(EXPERIMENTS) == figures | {"bonuses", "efficiency"}
    assert all(name == experiment().name for name, experiment in EXPERIMENTS.items())


def test_figure1():
    assert EXPERIMENTS["figure1"]().seeds == 1
    assert arms("figure1") == {"rnd": expected()}


def test_figure3_has_no_extrinsic_reward():
    experiment = EXPERIMENTS["figure3"]()
    assert (experiment.seeds, experiment.measures, experiment.x) == (
        5,
        ("return_mean", "return_best", "rooms"),
        "frames",
    )
    for name, trained in (("figure3", False), ("figure3-release", True)):
        blind = {"ext_coef": 0.0, "train_ext_value": trained}
        assert arms(name) == {
            "episodic-0.99": expected(**blind, episodic_int=True),
            "nonepisodic-0.99": expected(**blind),
            "nonepisodic-0.999": expected(**blind, gamma_int=0.999),
        }
    # "The best return achieved by 4 out 5 runs": one episode, not a mean; "one of the runs exploring 21 rooms"
    assert {score.measure: score.value for score in experiment.scores[""]} == {"return_best": 6_700, "rooms": 21}


def test_figure4_both_discounts_are_0_99():
    both = {"gamma_int": 0.99, "gamma_ext": 0.99}
    experiment = EXPERIMENTS["figure4"]()
    assert (experiment.seeds, experiment.measures) == (5, ("return_mean", "rooms"))
    wanted = {}
    for policy in ("gru", "cnn"):
        wanted |= {
            f"{policy}-nonepisodic-two": expected(policy=policy, **both),
            f"{policy}-episodic-two": expected(policy=policy, episodic_int=True, **both),
            f"{policy}-episodic-one": expected(policy=policy, episodic_int=True, value_heads=1, **both),
        }
    assert arms("figure4") == wanted


def test_figure5_discounts():
    experiment = EXPERIMENTS["figure5"]()
    assert (experiment.seeds, experiment.measures) == (10, ("return_mean",))
    assert arms("figure5") == {
        "int-0.99-ext-0.99": expected(gamma_ext=0.99),
        "int-0.99-ext-0.999": expected(),
        "int-0.999-ext-0.999": expected(gamma_int=0.999),
    }


def test_figure6_scale():
    experiment = EXPERIMENTS["figure6"]()
    assert (experiment.seeds, experiment.x) == (5, "updates")
    frames = {32: 491_520_000, 128: 1_966_080_000, 1024: 15_728_640_000}
    assert arms("figure6") == {
        f"{policy}-{n}": expected({"num_envs": n}, policy=policy, frames=frames[n])
        for policy in ("cnn", "gru")
        for n in (32, 128, 1024)
    }
    assert [round(frames[n] / BILLION, 1) for n in (32, 128, 1024)] == [0.5, 2.0, 15.7]
    # the predictor's batch is held constant: the keep probabilities that the paper states
    assert {c.env.num_envs: c.keep for c in arms("figure6").values()} == {32: 1.0, 128: 0.25, 1024: 0.03125}
    assert {score.value for score in experiment.scores["RNN policy"]} == {7_570, 10_070, 14_415}


GAMES = {
    "gravitar": "ALE/Gravitar-v5",
    "montezuma": "ALE/MontezumaRevenge-v5",
    "pitfall": "ALE/Pitfall-v5",
    "private-eye": "ALE/PrivateEye-v5",
    "solaris": "ALE/Solaris-v5",
    "venture": "ALE/Venture-v5",
}


@pytest.mark.parametrize(
    ("name", "policy", "seeds"), [("figure7", "gru", 3), ("figure9", "cnn", 5), ("table1", "gru", 3)]
)
def test_six_games_and_three_methods(name, policy, seeds):
    assert EXPERIMENTS[name]().seeds == seeds
    assert arms(name) == {
        f"{game}-{bonus}": expected({"id": env_id}, policy=policy, bonus=bonus)
        for game, env_id in GAMES.items()
        for bonus in ("rnd", "dynamics", "none")
    }


def test_figure8_autoencoder():
    assert EXPERIMENTS["figure8"]().seeds == 5
    assert arms("figure8") == {"rnd": expected(), "autoencoder": expected(bonus="autoencoder")}


def test_table1_is_the_papers():
    """Row by row as printed: Gravitar, Montezuma's Revenge, Pitfall!, PrivateEye, Solaris, Venture."""
    printed = {
        "RND": [3_906, 8_152, -3, 8_666, 3_282, 1_859],
        "PPO": [3_426, 2_497, 0, 105, 3_387, 0],
        "Dynamics": [3_371, 400, 0, 33, 3_246, 1_712],
        "SOTA": [2_209, 3_700, 0, 15_806, 12_380, 1_813],
        "Avg. Human": [3_351, 4_753, 6_464, 69_571, 12_327, 1_188],
    }
    assert {row: list(values.values()) for row, values in TABLE1.items()} == printed
    scores = EXPERIMENTS["figure7"]().scores["Montezuma's Revenge"]
    assert {score.arm: score.value for score in scores} == {"RND": 8_152, "PPO": 2_497, "Dynamics": 400}


def test_every_arm_can_be_run_and_has_its_own_name():
    for name, recipe_of in EXPERIMENTS.items():
        assert len(arms(name)) == len(recipe_of().arms)
        for config in arms(name).values():
            config.validate()


def test_the_command_for_1024_environments_in_the_docs_is_the_papers_run():
    text = (Path(__file__).parents[2] / "docs" / "scaling.md").read_text()
    ranks, game, frames = re.search(r"nproc-per-node (\d+) -m rnd train (\w+) --frames (\d+)", text).groups()
    config = replace(preset(game), ranks=int(ranks), frames=int(frames))
    paper = arms("figure6")["cnn-1024"]
    assert (config.all_envs, config.iterations) == (1_024, 30_000)
    assert (config.frames, config.keep, config.policy) == (paper.frames, paper.keep, paper.policy)


@pytest.mark.parametrize(("game", "frames"), [("montezuma", 200_000_000), ("rnd/DeepSea-20", 400_000)])
def test_the_comparison_of_bonuses_is_not_of_the_paper_and_changes_the_bonus_alone(game, frames):
    experiment = bonuses(game)
    assert "Not of the paper" in experiment.title
    assert [arm.name for arm in experiment.arms] == ["rnd", "snd-v", "snd-vic", "drnd", "noveld", "count", "none"]
    assert {replace(arm.config, bonus="rnd") for arm in experiment.arms} == {
        replace(preset(game, "choices"), frames=frames)
    }
    for arm in experiment.arms:
        arm.config.validate()
        assert arm.config.bonus == arm.name
    assert {arm.config.frames for arm in bonuses(game, 1000).arms} == {1000}


def test_the_arms_of_efficiency_differ_in_one_thing_from_one_that_is_compared():
    """From 16 minibatches, from `public` or from `snd`; but for minibatches and environments, and a few that need a
    second flag for the one thing."""
    needed = {"16-overlap-refresh": 2, "16-half-life-int-0.3": 2, "16-raw-clipped": 2, "16-snd-v-raw-clipped": 3}
    needed |= {"snd-half-life-int-0.3": 4}
    found = {name: config.flat() for name, config in arms("efficiency").items()}
    bases = {name: found.pop(name) for name in ("minibatches-16", "public", "snd")}
    for name, config in found.items():
        counts = [
            len({field for field, value in config.items() if value != base[field]} - {"minibatches"})
            for base in bases.values()
        ]
        assert min(counts) <= needed.get(name, 1), (name, counts)
    assert {config["frames"] for config in found.values()} == {200_000_000}
    assert {arm.config.frames for arm in efficiency(1000).arms} == {1000}
    assert {config["seed"] for config in found.values()} == {1}


def test_snd_is_public_with_another_bonus_and_its_scale():
    found = {name: config.flat() for name, config in arms("efficiency").items()}
    different = {field for field, value in found["snd"].items() if value != found["public"][field]}
    assert different == {"bonus", "bonus_scale"} and found["public"]["bonus"] == "rnd"
