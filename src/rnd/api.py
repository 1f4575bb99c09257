"""The paper's agent from Python: `rnd.train`, `rnd.load`.

agent = rnd.train("MiniGrid-DoorKey-6x6-v0", frames=250_000)
agent = rnd.load("runs/NAME")                  # or an exported .safetensors file
agent.evaluate(episodes=20).mean_return
"""

from __future__ import annotations

import dataclasses
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rnd.checkpoint import export, zoo
from rnd.checkpoint.metadata import spec_from_dict
from rnd.config import Config, Reads
from rnd.config.components import resolve
from rnd.config.presets import DEFAULT_JOB, preset, with_bonus
from rnd.data.transitions import Transitions
from rnd.envs.factories import call_factory, gym_factory, kind_of, reads
from rnd.envs.gym_env import ActionTranslator
from rnd.envs.spaces import ObservationEncoder
from rnd.foundation.errors import UserError
from rnd.models import actions as act
from rnd.models.acting import Actor
from rnd.report.options import WatchOptions
from rnd.training.evaluation import Evaluation, evaluate


def train(game: str | Config = DEFAULT_JOB, *, quiet: bool = False, **overrides: Any) -> Agent:
    """Train a new run, as `rnd train GAME` does, and return its agent. The run folder is `agent.path`.

    `rnd.train("montezuma", frames=10_000_000, env={"num_envs": 32}, bonus_options={"features": 256})`

    - `game`: a game of the paper, `ALE/NAME-v5`, a Gymnasium id, `module:function`, or a whole `rnd.Config`.
    - `quiet`: print nothing.
    - `overrides`: fields of the config (`rnd train --help` lists them), groups of fields as dictionaries.
    """
    from rich.console import Console

    from rnd import run

    if not isinstance(game, str | Config):
        raise UserError(
            f"rnd.train takes a name, not {type(game).__name__}: a Gymnasium id, or 'module:function' for a function "
            "that makes your environment; of a notebook or script it is '__main__:function'"
        )
    env = overrides.get("env")
    given: Any = env.get("reads") if isinstance(env, dict) else getattr(env, "reads", None)
    config = game if isinstance(game, Config) else starting_config(game, overrides, given or "all")
    config = with_changes(config, overrides)
    config.validate()
    folder = run.start(config, Console(quiet=quiet))
    return load(folder.path)


def load(path: str | Path, device: str = "cpu", seed: int = 0, trusted: bool = False, best: bool = False) -> Agent:
    """The trained agent that a path names.

    - `path`: a run folder (its newest whole checkpoint), a checkpoint, a file of `rnd export`, or `zoo:NAME`.
    - `device`: where its networks compute: `cpu`, `cuda`, `cuda:1`.
    - `seed`: of the actions that it samples.
    - `trusted`: code that the agent's config names (`module:attribute`) may be imported.
    - `best`: of a run folder, take the checkpoint with the highest mean return of 100 episodes instead of the newest;
      `agent.card` says which it is.
    """
    found = zoo.locate(str(path))
    return Agent(export.load_agent(found, device, trusted, best), found, seed, best)


def starting_config(game: str, chosen: dict[str, Any], reads: Reads = "all") -> Config:
    """The preset of a game, with the bonus, policy and writers that were chosen: they decide which options exist.
    `reads`: what of observations with images."""
    chosen = {name: chosen[name] for name in ("bonus", "policy", "writers") if chosen.get(name) is not None}
    policy = chosen.get("policy", "cnn")
    kind = kind_of(game, "vector" if policy == "mlp" else reads)
    if kind.startswith("image") and policy != "cnn":  # what is tuned for images is tuned for the CNN
        kind = "choices" if kind == "image" else "numbers"
    start = preset(game, kind)
    return resolve(dataclasses.replace(with_bonus(start, chosen.get("bonus", start.bonus)), **chosen))


def with_changes(config: Config, changes: dict[str, Any]) -> Config:
    """`config` with some fields replaced. Groups are dictionaries of the fields to replace in them."""
    data = config.to_dict()
    for name, value in changes.items():
        value = dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]
        group = next((g for g, fields in data.items() if isinstance(fields, dict) and name in fields), None)
        if name not in data and group is not None:
            raise UserError(f"unknown config field {name}; nearest: {group}={{{name!r}: {value!r:.40}}}")
        if isinstance(before := data.get(name), dict):
            if not isinstance(value, dict):
                raise UserError(f"{name} is a group of fields: give a dictionary of some of them, not {value!r:.60}")
            value = before | value
        data[name] = value
    return resolve(Config.from_dict(data))


class Agent:
    """A trained agent. It reads observations as the environment gives them, one or a batch.

    `act` remembers what its policy needs (the last frames, the recurrent state): call it at every step, with
    `first=True` for the first observation of an episode, or `reset` between episodes.
    """

    def __init__(self, parts: export.SavedAgent, path: Path, seed: int = 0, best: bool = False):
        self.config, self.policy, self.card, self.path = parts.config, parts.policy, parts.card, path
        self._parts, self._bonus, self._best = parts, parts.bonus, best
        self.device = next(parts.policy.parameters()).device
        self.spec = spec_from_dict(self.config.env.id, self.card["spec"])
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self._encoder, self._to_env = self._interface()
        self.reset()

    def _interface(self) -> tuple[ObservationEncoder, Any]:
        """How the environment's observations and actions become the networks', and back."""
        env_id, observation = self.config.env.id, self.spec.observation
        if env_id.startswith(("ALE/", "rnd/")):  # frames of 84x84 and vectors, as they are
            image = observation.kind == "image"
            space = spaces.Box(0, 255, observation.shape, np.uint8) if image else spaces.Box(0, 1, observation.shape)
            return ObservationEncoder(space), lambda action: action
        with closing(call_factory(gym_factory(env_id), env_id, 1)) as env:
            space = getattr(env, "single_observation_space", env.observation_space)
            to_env = ActionTranslator(getattr(env, "single_action_space", env.action_space), env_id)
        return ObservationEncoder(space, env_id, reads(self.config)), to_env

    def reset(self) -> None:
        """The next observations are the first of their episodes."""
        self._actor: Actor | None = None

    def act(self, obs: Any, first: Any = False, deterministic: bool = False) -> Any:
        """Actions for one observation, or for a batch (N, ...), as the environment takes them.

        - `obs`: as the environment gives them.
        - `first`: the observation is the first of its episode; one value, or one per environment.
        - `deterministic`: the most likely action instead of a sampled one.
        """
        obs_NX, single = self._encoded(obs)
        count = len(obs_NX)
        if self._actor is None or len(self._actor.age) != count:
            self._actor, first = Actor(self.policy, self.spec, count), True
        first_N = torch.as_tensor(first).expand(count)
        noise = act.draw_noise(self.spec.action, (count,), self.generator, self.device) * (not deterministic)
        actions = self._actor.act(obs_NX, first_N, noise, range(count)).cpu().numpy()
        return self._to_env(actions[0] if single else actions)

    @torch.no_grad()
    def bonus(self, obs: Any, before: Any = None, actions: Any = None) -> Any:
        """Raw bonus of observations: how new the trained agent finds them.

        - `obs`: one observation or a batch (N, ...).
        - `before`, `actions`: s_t and a_t, for bonuses that read them.
        """
        if self._bonus is None:
            raise UserError(f"{self.path} has no bonus: its file has the policy alone; load the run that it is from")
        obs_NX, single = self._encoded(obs)
        if self._bonus.reads_action and (before is None or actions is None or self.spec.observation.stack > 1):
            raise UserError(
                f"the bonus {self.config.bonus} reads s_t and a_t: give it before=... and actions=..."
                "; for images use rnd watch"
            )
        if self._bonus.reads_obs and before is None:
            raise UserError(f"the bonus {self.config.bonus} reads s_t: give it before=...")
        previous = obs_NX if before is None else self._encoded(before)[0]
        taken = torch.zeros(len(obs_NX), dtype=torch.int64) if actions is None else torch.as_tensor(actions)
        taken = taken.reshape(len(obs_NX), *self.spec.action.shape) if actions is not None else taken
        scores_N = self._bonus.score(Transitions.pairs(previous, taken.to(self.device), obs_NX))[0].cpu().numpy()
        return float(scores_N[0]) if single else scores_N

    def evaluate(self, episodes: int = 100, seed: int = 1, greedy: bool = False) -> Evaluation:
        """Play episodes in environments of its own, as `rnd evaluate` does.

        - `episodes`: how many, one per environment.
        - `seed`: of the environments and of the sampled actions.
        - `greedy`: take the most likely actions instead of sampling.
        """
        if episodes < 1:
            raise UserError(f"episodes must be 1 or more, not {episodes}")
        return evaluate(self._parts, episodes, seed, greedy)

    def watch(self, episodes: int = 1, seed: int = 1) -> list[Path]:
        """Play episodes and write the best one as video, strip of frames and table, as `rnd watch` does. Returns the
        paths of .mp4, .png, .svg and .csv (without a bonus .mp4 and .csv).

        - `episodes`: how many are played; the one with the highest return is written.
        - `seed`: of the environments and of the sampled actions.
        """
        from rich.console import Console

        from rnd.report.watch import watch

        options = WatchOptions(episodes, seed=seed, best=self._best, trust=True)  # its code runs already
        return watch(self.path, options, Console(quiet=True))

    def _encoded(self, obs: Any) -> tuple[Tensor, bool]:
        """Encoded observations [N, X], and whether one was given instead of a batch."""
        lead = self._encoder.lead(obs)
        encoded = self._encoder(obs).to(self.device)
        if len(lead) > 1:
            raise UserError(f"one observation or a batch (N, ...) is wanted, not the leading shape {lead}")
        return (encoded, False) if lead else (encoded[None], True)
