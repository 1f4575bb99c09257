"""The config that a game starts from: the paper's for Atari, small ones elsewhere.

A preset is only a starting point: every field can be set on the command line.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from rnd.config.components import resolve
from rnd.config.config import BonusOptions, Config, EnvConfig, PolicyOptions, open_options

DEFAULT_JOB = "MiniGrid-MultiRoom-N4-S5-v1"

ATARI_GAMES = {
    "montezuma": "ALE/MontezumaRevenge-v5",
    "gravitar": "ALE/Gravitar-v5",
    "pitfall": "ALE/Pitfall-v5",
    "private-eye": "ALE/PrivateEye-v5",
    "solaris": "ALE/Solaris-v5",
    "venture": "ALE/Venture-v5",
    "freeway": "ALE/Freeway-v5",
}
"""The six games of the paper, and the seventh hard-exploration game that it names."""


Kind = Literal["numbers", "choices", "image", "image+vector"]
"""What the networks of a Gymnasium environment read: numbers (some, at least), choices one-hot, images, or images with
numbers or choices."""

CHOICES: dict[str, Any] = {
    # Solves what RND solves, in as many steps or fewer, and grids with keys and doors that RND does not.
    "bonus": "noveld",
    "policy": "mlp",
    "bonus_options": BonusOptions(features=64, hidden=128, keep=1.0, random_steps=128),
    "ext_coef": 5.0,
    "entropy_coef": 0.003,
}
# Whitened, and the bonus first: a value that is not yet learned is noise, which must not drown the bonus before it has
# led anywhere. A slow predictor, because it learns from one state about all that are like it.
NUMBERS = CHOICES | {
    "normalize_obs": True,
    "normalize_reward": True,
    "normalize_adv": True,
    "bonus_lr": 3e-5,
    "ext_coef": 0.5,
    "entropy_coef": 0.01,
}
# The predictor on a quarter of the samples as in the paper, and two epochs: on a CPU they are most of the time
# (docs/environments.md). Eight environments make as many updates of them as four epochs with 16 would.
# More entropy than elsewhere: with a third of it the policy was certain before it had found the door.
IMAGE = CHOICES | {
    "policy": "cnn",
    "bonus_options": BonusOptions(features=64, hidden=128, keep=0.25, random_steps=128),
    "normalize_adv": True,
    "epochs": 2,
    "lr": 5e-4,
    "bonus_lr": 1e-3,
    "entropy_coef": 0.03,
}
# The vector is whitened as numbers are; what is one-hot stays as it is.
BOTH = IMAGE | {"normalize_obs": True}
KINDS: dict[Kind, dict[str, Any]] = {"numbers": NUMBERS, "choices": CHOICES, "image": IMAGE, "image+vector": BOTH}
"""What `small` is for each kind of observations: docs/small-tasks.md has the results behind it."""

NUM_ENVS: dict[Kind, int] = {"numbers": 8, "choices": 32, "image": 8, "image+vector": 8}
"""Fewer environments give more updates per step. `bonus_lr` of numbers is low enough for them."""

FAMILIES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    # A reward at every step that tells at once how good an action was.
    "classic control": (("Pendulum-",), {"bonus": "rnd", "gamma_ext": 0.9}),
    # Slippery: with a larger weight the entropy collapses at a third of the successes.
    "toy text": (("FrozenLake",), {"bonus": "rnd", "ext_coef": 1.0}),
    # A landing is hundreds of steps away, and hovering must not become a habit.
    "Box2D": (("LunarLander-",), {"bonus": "rnd", "gamma_ext": 0.999, "gae_lambda": 0.98, "entropy_coef": 0.01}),
}
"""Tuned starting points for tasks of other people: a family's name to the beginnings of its ids and what it changes in
`small` of choices. docs/environments.md has the measured results; a family without one does not belong here."""


BONUS_CHANGES: dict[str, dict[str, Any]] = {
    # It starts anew with every episode, so what comes after the end must not count: ends would be worth it. And its
    # encoder learns as fast as the policy, where predictors of numbers are slow.
    "e3b": {"episodic_int": True, "bonus_lr": None},
}
"""What a bonus changes where it is chosen by name."""


def preset(game: str, kind: Kind = "numbers") -> Config:
    """The config from which `rnd train GAME` starts. `kind`: that of a Gymnasium environment's observations, where its
    name does not say it."""
    env_id = ATARI_GAMES.get(game, game)
    if env_id.startswith("ALE/"):
        return atari(env_id)
    if env_id == "rnd/FourRooms":
        return small(env_id, "numbers")
    if env_id.startswith("rnd/"):
        return builtin(env_id)
    if env_id.startswith("craftax:"):
        return craftax(env_id)
    for prefixes, fields in FAMILIES.values():
        if env_id.startswith(prefixes):
            return replace(small(env_id, "choices"), **fields)
    return small(env_id, "choices" if is_minigrid(env_id) or env_id.startswith("navix:") else kind)


def with_bonus(config: Config, name: str) -> Config:
    """A preset with another bonus."""
    return replace(config, bonus=name, **BONUS_CHANGES.get(name, {}))


def atari(env_id: str) -> Config:
    """The paper's run: every default of `Config`."""
    return Config(env=EnvConfig(id=env_id))


def small(env_id: str, kind: Kind = "numbers") -> Config:
    """A run of minutes on two cores. Sparse-reward tasks are what it is tuned on."""
    config = Config(
        env=EnvConfig(id=env_id, num_envs=NUM_ENVS[kind], frame_skip=1, sticky=0.0),
        frames=600_000,
        rollout_steps=64,
        lr=1e-3,
        clip_range=0.2,
        gamma_ext=0.99,
        clip_reward=False,
        bootstrap_truncated=True,
    )
    return replace(config, **KINDS[kind])


def craftax(env_id: str) -> Config:
    """The sizes and PPO's values of the Craftax paper's baselines (Craftax_Baselines, `ppo_rnd.py`). The predictor
    learns from a quarter of the samples in each of four epochs where they give it one epoch of its own. The weight of
    the bonus is not tuned: theirs counts advantages that are scaled in another way."""
    width = open_options(PolicyOptions, {"width": 512})
    assert isinstance(width, PolicyOptions)
    return Config(
        env=EnvConfig(id=env_id, num_envs=1024, frame_skip=1, sticky=0.0),
        bonus_options=BonusOptions(features=512, hidden=256, keep=0.25, random_steps=128),
        policy="mlp",
        policy_options=width,
        frames=100_000_000,
        rollout_steps=64,
        minibatches=8,
        lr=2e-4,
        bonus_lr=3e-4,
        clip_range=0.2,
        gamma_ext=0.99,
        gae_lambda=0.8,
        entropy_coef=0.01,
        max_grad_norm=1.0,
        normalize_adv=True,
        ext_coef=1.0,
        int_coef=0.1,
        clip_reward=False,
        bootstrap_truncated=True,
    )


def is_minigrid(env_id: str) -> bool:
    """Whether an id, or `module:id`, is one of MiniGrid's. Its cells are one-hot."""
    return env_id.rpartition(":")[2].startswith(("MiniGrid-", "BabyAI-"))


def builtin(env_id: str) -> Config:
    """DeepSea and NoisyTV: cells one-hot. A lower entropy weight: DeepSea needs 20 right choices in a row."""
    return Config(
        env=EnvConfig(id=env_id, num_envs=32, frame_skip=1, sticky=0.0),
        bonus_options=BonusOptions(features=64, hidden=128, keep=1.0, random_steps=128),
        policy="mlp",
        frames=400_000,
        lr=1e-3,
        gamma_ext=0.99,
        clip_reward=False,
        bootstrap_truncated=True,
    )


def changes(config: Config, *roles: str) -> dict[str, Any]:
    """The fields of some roles that differ from the preset of the game, by dotted name.

    Options that only a module of the user's own declares count as changed: their defaults are not known here.
    """
    # Nothing but images can have the first, and only numbers start with the second.
    kind: Kind = "numbers" if config.normalize_obs else "choices"
    if config.policy == "cnn":
        kind = "image+vector" if config.normalize_obs else "image"
    default = preset(config.env.id, kind)
    start = replace(with_bonus(default, config.bonus), policy=config.policy)
    config, before = resolve(config, import_all=False), resolve(start, import_all=False).flat()
    before |= {"bonus": default.bonus, "policy": default.policy}
    flat = config.flat()
    names = [name for role in roles for name in config.named(role)]
    return {name: flat[name] for name in flat if name in names and flat[name] != before.get(name, object())}
