"""The config that a game starts from: the paper's for Atari, small ones elsewhere.

A preset is only a starting point: every field can be set on the command line.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rnd.components import resolve
from rnd.config import BonusOptions, Config, EnvConfig

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


NUMBERS: dict[str, Any] = {
    "normalize_obs": True,
    "normalize_reward": True,
    "normalize_adv": True,
    "bonus_lr": 1e-4,
    "ext_coef": 0.1,
    "entropy_coef": 0.01,
}
PLAIN: dict[str, Any] = {
    "normalize_obs": False,
    "normalize_reward": False,
    "normalize_adv": False,
    "bonus_lr": None,
    "ext_coef": 5.0,
    "entropy_coef": 0.003,
}
"""What differs between vectors of numbers, and pictures or cells: docs/small-tasks.md has the results behind it."""

FAMILIES: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    # The default job. Cells are one-hot: nothing to whiten.
    "MiniGrid": (("MiniGrid-", "BabyAI-"), PLAIN),
    # A reward at every step that tells at once how good an action was.
    "classic control": (("Pendulum-",), PLAIN | {"gamma_ext": 0.9}),
    # A landing is hundreds of steps away, and hovering must not become a habit.
    "Box2D": (("LunarLander-",), PLAIN | {"gamma_ext": 0.999, "gae_lambda": 0.98, "entropy_coef": 0.01}),
}
"""Tuned starting points for tasks of other people: a family's name to the beginnings of its ids and what it changes in
`small`. docs/environments.md has the measured results; a family without one does not belong here."""


def preset(game: str, image: bool = False) -> Config:
    """The config from which `rnd train GAME` starts. `image`: a Gymnasium environment that shows pictures."""
    env_id = ATARI_GAMES.get(game, game)
    if env_id.startswith("ALE/"):
        return atari(env_id)
    if env_id.startswith("rnd/"):
        return builtin(env_id)
    tuned = [fields for prefixes, fields in FAMILIES.values() if env_id.startswith(prefixes)]
    config = small(env_id, image)
    return replace(config, **tuned[0]) if tuned else config


def atari(env_id: str) -> Config:
    """The paper's run: every default of `Config`."""
    return Config(env=EnvConfig(id=env_id))


def small(env_id: str, image: bool = False) -> Config:
    """A run of minutes on two cores. Sparse-reward tasks are what it is tuned on.

    Vectors: whitened, and the bonus counts ten times as much as the reward: a value that is not yet learned is noise,
    and noise must not drown the bonus before it has led anywhere. It fades by itself, more slowly with a predictor that
    learns slowly.

    Pictures: the CNN, with epochs and learning rate of PPO's own Atari runs (Schulman et al. 2017), and the predictor
    on a quarter of the samples as in the paper. Not tuned."""
    config = Config(
        env=EnvConfig(id=env_id, num_envs=32, frame_skip=1, sticky=0.0),
        bonus_options=BonusOptions(features=64, hidden=128, keep=0.25 if image else 1.0, random_steps=128),
        policy="cnn" if image else "mlp",
        frames=600_000,
        rollout_steps=64,
        epochs=3 if image else 4,
        lr=2.5e-4 if image else 1e-3,
        clip_range=0.2,
        gamma_ext=0.99,
        clip_reward=False,
        bootstrap_truncated=True,
    )
    return replace(config, **(PLAIN if image else NUMBERS))


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
    default = preset(config.env.id, image=config.policy == "cnn")  # which nothing but pictures can have
    start = replace(default, bonus=config.bonus, policy=config.policy)
    config, before = resolve(config, import_all=False), resolve(start, import_all=False).flat()
    before |= {"bonus": default.bonus, "policy": default.policy}
    flat = config.flat()
    names = [name for role in roles for name in config.named(role)]
    return {name: flat[name] for name in flat if name in names and flat[name] != before.get(name, object())}
