"""The loop: collect, score, returns, observe, update. Algorithm 1 of the paper, on one screen.

Legend: T steps, N environments.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rnd import bonus as bonuses
from rnd import memory
from rnd.config import Config
from rnd.envs.interface import VectorEnv
from rnd.errors import RunError, UserError
from rnd.fast import arithmetic, channels_last, compiled
from rnd.networks import Policy
from rnd.normalize import ReturnScaler
from rnd.overlap import OverlappedCollector
from rnd.ppo import Learner
from rnd.record import generators
from rnd.record.episodes import EpisodeStats
from rnd.record.metrics import Row
from rnd.returns import combine
from rnd.rollout import Collector, Rollout, random_actions
from rnd.stopwatch import Stopwatch
from rnd.transitions import Transitions

SCORED_AT_ONCE = {"cpu": 4096, "cuda": 16_384}
"""Transitions whose bonus is computed together: bounds the memory of the networks' activations."""


class Trainer:
    """All that has state in a run, in the order in which data flows."""

    def __init__(self, config: Config, env: VectorEnv):
        self.config, self.env, self.device = config, env, resolve_device(config)
        seed_everything(config)
        spec = env.spec
        check_policy(config, env)
        memory.check(config, spec.observation, self.device)
        policy = Policy(config.policy, spec.observation, spec.action, config.policy_width)
        bonus = bonuses.make(config.bonus, spec.observation, spec.action, config.bonus_options)
        self.policy = channels_last(policy.to(self.device), self.device)
        self.bonus = channels_last(bonus.to(self.device), self.device)
        self.scaler = ReturnScaler(config.env.num_envs, config.gamma_int).to(self.device)
        # Acting and learning may overlap, so each draws from its own generator.
        acting, learning = (torch.Generator(self.device).manual_seed(config.seed + k * 2**32) for k in (0, 1))
        self.generators = {"acting": acting, "learning": learning}
        self.random = np.random.default_rng(config.seed)
        collector = Collector(config, env, self.policy, self.device, acting)
        self.collector = OverlappedCollector(collector) if config.overlap else collector
        self.learner = Learner(config, spec.action, self.policy, self.bonus, learning)
        self.episodes = EpisodeStats(spec.success_return, spec.has_cells)
        self.clock = Stopwatch("learning")
        self._score = compiled(self.bonus.score, config, self.device)
        self._bonus_targets = compiled(self.bonus.targets, config, self.device)
        self.iteration = 0

    @property
    def frames(self) -> int:
        return self.iteration * self.config.frames_per_rollout

    def train(self) -> Iterator[Row]:
        """Algorithm 1 of the paper; one row of metrics an iteration."""
        while self.iteration < self.config.iterations:
            # sample a_t ~ policy, and s_{t+1}, e_t from the environments
            rollout = self.collector.collect()
            with self.clock("learning"):
                learned = self.learn(rollout)
            self.iteration += 1
            self.episodes.update(rollout.episodes, rollout.rooms_entered, self.frames)
            yield self.row(learned)

    def learn(self, rollout: Rollout) -> dict[str, float]:
        """Everything of an iteration but acting."""
        moves = rollout.transitions
        # intrinsic reward of s_{t+1}, with the statistics as they were; then normalise it
        with arithmetic(self.config, self.device):
            bonus_TN = in_chunks(self._score, moves).float()
        intrinsic_TN = self.scaler(bonus_TN)
        # returns and advantages of both streams, combined
        values = rollout.values_ext_TpN, rollout.values_int_TpN
        targets = combine(self.config, rollout.rewards_ext_TN, intrinsic_TN, *values, rollout.done_TN)
        # update the observation statistics, then optimise policy and predictor with the new ones
        self.bonus.observe(moves.next_obs)
        with arithmetic(self.config, self.device):
            bonus_targets = in_chunks(self._bonus_targets, moves)
        losses = self.learner.update(rollout, targets, bonus_targets)
        return {
            "bonus_raw": float(bonus_TN.mean()),
            "bonus_max": float(bonus_TN.max()),
            "bonus_scaled": float(intrinsic_TN.mean()),
            "bonus_scale": float(self.scaler.moments.std),
            "return_int": float(self.scaler.carry_N.mean() / self.scaler.moments.std),
            **losses,
        }

    def random_start(self) -> Iterator[int]:
        """Start the observation statistics with a random agent; yields the steps done in every environment."""
        chunk, total = self.config.rollout_steps, random_steps(self.config)
        if not self.bonus.random_start or total == 0:
            return
        self.env.reset()
        seen: list[Tensor] = []
        for step in range(1, total + 1):
            seen.append(self.env.step(random_actions(self.env, self.random)).obs.clone())
            if step % chunk == 0 or step == total:
                for obs in torch.stack(seen).split(at_once(self.device, self.env.num_envs)):
                    self.bonus.observe(obs.to(self.device))
                seen.clear()
                yield step

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next iteration depends on. Nested dicts of tensors, arrays and JSON."""
        return {
            "iteration": self.iteration,
            **{name: part.state_dict() for name, part in self.modules().items()},
            "optimizer": self.learner.state_dict(),
            "collector": self.collector.state_dict(),
            "env": self.env.state_dict(),
            "episodes": self.episodes.state_dict(),
            "generators": generators.save(self.generators, self.random),
        }

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        """Go on from `state`; False where the run moved to another kind of device and its draws will differ."""
        for name, part in self.modules().items():
            missing = part.state_dict().keys() - state.get(name, {}).keys()
            if missing:
                raise RunError(f"the checkpoint lacks the state of {name}: {', '.join(sorted(missing))}")
        self.iteration = int(state["iteration"])
        for name, part in self.modules().items():
            part.load_state_dict(state[name])
        self.learner.load_state_dict(state["optimizer"])
        self.collector.load_state_dict(state["collector"])
        self.env.load_state_dict(state["env"])
        self.episodes.load_state_dict(state["episodes"])
        return generators.load(state["generators"], self.generators, self.random)

    def modules(self) -> dict[str, nn.Module]:
        return {"policy": self.policy, "bonus": self.bonus, "scaler": self.scaler}

    def row(self, learned: dict[str, float]) -> Row:
        """What is recorded of an iteration: the same for the same seed."""
        return {
            "iteration": self.iteration,
            "frames": self.frames,
            "updates": self.iteration * self.config.epochs * self.config.minibatches,
            **self.episodes.summary(),
            **learned,
        }


def in_chunks(function: Callable[[Transitions], Tensor], moves: Transitions) -> Tensor:
    """`function` over a rollout, a few steps at a time."""
    steps, envs = moves.actions.shape[:2]
    size = at_once(moves.frames.device, envs)
    return torch.cat([function(moves.steps(t, min(t + size, steps))) for t in range(0, steps, size)])


def at_once(device: torch.device, envs: int) -> int:
    """Steps of a rollout that are scored together."""
    return max(1, SCORED_AT_ONCE[device.type] // envs)


def random_steps(config: Config) -> int:
    """Steps of the random agent in every environment: at most a tenth of the run."""
    return min(config.bonus_options.random_steps, config.iterations * config.rollout_steps // 10)


def seed_everything(config: Config) -> None:
    random.seed(config.seed)
    np.random.seed(config.seed % 2**32)
    torch.manual_seed(config.seed)
    if config.threads:
        torch.set_num_threads(config.threads)


def resolve_device(config: Config) -> torch.device:
    """CUDA where it is found, else the CPU."""
    name = config.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"--device {name}: PyTorch finds no CUDA device here; nearest: --device cpu")
    if name.startswith("cuda"):
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = config.precision != "float32"
        torch.backends.cudnn.benchmark = config.fast  # shapes never change: let it look for the best kernels once
    return torch.device(name)


def check_policy(config: Config, env: VectorEnv) -> None:
    """A policy must be able to read what the environment shows."""
    kind = env.spec.observation.kind
    if kind == "image" and config.policy == "mlp":
        raise UserError(f"{config.env.id} shows images, which --policy mlp cannot read; nearest: --policy cnn")
    if kind == "vector" and config.policy == "cnn":
        raise UserError(f"{config.env.id} shows vectors, which --policy cnn cannot read; nearest: --policy mlp")
