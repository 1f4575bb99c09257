"""The loop: collect, score, returns, observe, update. Algorithm 1 of the paper, on one screen.

Legend: T steps, N environments.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rnd import bonus as bonuses
from rnd import memory
from rnd.config import Config
from rnd.distributed import ALONE, Ranks, share
from rnd.envs.interface import VectorEnv
from rnd.envs.splitmix import environment_seed
from rnd.errors import RunError, UserError
from rnd.fast import Replay, arithmetic, channels_last, compile_sums, compiled, filed, make_current
from rnd.networks import Policy
from rnd.normalize import ReturnScaler
from rnd.overlap import OverlappedCollector
from rnd.ppo import Learner
from rnd.record import generators
from rnd.record.episodes import EpisodeStats
from rnd.record.metrics import Row
from rnd.redistribute import deal
from rnd.returns import Targets, combine
from rnd.rollout import Collector, random_actions
from rnd.stopwatch import Stopwatch
from rnd.transitions import Rollout, Transitions

SCORED_AT_ONCE = {"cpu": 4096, "cuda": 65_536}
"""Transitions whose bonus is computed together: bounds the memory of the networks' activations."""


class Prepared(NamedTuple):
    """What the update reads beside the rollout, and figures of it: means of the raw and the scaled bonus and of its
    discounted sum, the largest bonus, and the scale."""

    targets: Targets
    bonus_targets: Tensor
    figures: Tensor


class Trainer:
    """All that has state in a run, in the order in which data flows."""

    def __init__(self, config: Config, env: VectorEnv, ranks: Ranks = ALONE):
        self.config, self.env, self.ranks = config, env, ranks
        self.device = resolve_device(config, ranks)
        self.iteration = 0
        seed_everything(config)
        spec = env.spec
        check_policy(config, env)
        memory.check(config, spec.observation, self.device)
        policy = Policy(
            config.policy, spec.observation, spec.action, config.policy_width, third_kernel=config.policy_kernel
        )
        bonus = bonuses.make(config.bonus, spec.observation, spec.action, config.bonus_options)
        self.policy = channels_last(policy.to(self.device), self.device)
        self.bonus = channels_last(bonus.to(self.device), self.device)
        compile_sums(self.bonus, config, self.device)
        self.scaler = ReturnScaler(config.env.num_envs, config.gamma_int).to(self.device)
        for module in self.modules().values():
            ranks.copy_from_first_(module)
            share(module, ranks)
        # Acting and learning may overlap, so each draws from its own generator.
        acting, learning = torch.Generator(self.device), torch.Generator(self.device)
        self.generators = {"acting": acting, "learning": learning}
        self.random = np.random.default_rng()
        self.seed_draws()
        collector = Collector(config, env, self.policy, self.device, acting)
        self.collector = OverlappedCollector(collector) if config.overlap else collector
        self.learner = Learner(config, spec.action, self.policy, self.bonus, learning, ranks)
        self.episodes = EpisodeStats(spec.success_return, spec.has_cells)
        self.clock = Stopwatch("learning")
        self.rollout: Rollout | None = None
        self.prepared: Prepared | None = None
        self._score = compiled(self.bonus.score, config, self.device)
        self._bonus_targets = compiled(self.bonus.targets, config, self.device)
        captured = ranks.world == 1 and self.bonus.capturable
        self._prepare = Replay(self.prepare, config, self.device) if captured else self.prepare

    @property
    def frames(self) -> int:
        return self.iteration * self.config.frames_per_rollout

    def train(self) -> Iterator[Row]:
        """Algorithm 1 of the paper; one row of metrics an iteration."""
        while self.iteration < self.config.iterations:
            # sample a_t ~ policy, and s_{t+1}, e_t from the environments
            rollout = self.collector.collect(last=self.iteration + 1 >= self.config.iterations)
            told = self.ranks.gather((rollout.episodes, rollout.rooms_entered))
            with self.clock("learning"), self.collector.learning():
                learned = self.learn(rollout)
            self.iteration += 1
            for episodes, rooms_entered in told:
                self.episodes.update(episodes, rooms_entered, self.frames)
            yield self.row(learned)

    def learn(self, rollout: Rollout) -> dict[str, float]:
        """Everything of an iteration but acting."""
        self.rollout = filed(self.rollout, rollout, self.config, self.device)
        self._prepare()
        assert self.prepared is not None
        targets, bonus_targets, figures = self.prepared
        losses = self.learner.update(self.rollout, targets, bonus_targets)
        self.ranks.mean_([figures[:3]])
        raw, scaled, carry, largest, scale = figures.tolist()
        return {
            "bonus_raw": raw,
            "bonus_max": self.ranks.largest(largest)[0],
            "bonus_scaled": scaled,
            "bonus_scale": scale,
            "return_int": carry / scale,
            **losses,
        }

    def prepare(self) -> None:
        """Bonus, returns and statistics of the rollout: device work without a word to the host, unless ranks meet."""
        assert self.rollout is not None
        rollout, moves = self.rollout, self.rollout.transitions
        # intrinsic reward of s_{t+1}, with the statistics as they were; then normalise it
        with arithmetic(self.config, self.device):
            bonus_TN = in_chunks(self._score, moves).float()
        intrinsic_TN = self.scaler(bonus_TN)
        # returns and advantages of both streams, combined
        values = rollout.values_ext_TpN, rollout.values_int_TpN
        ends = rollout.done_TN, rollout.beyond_TN
        targets = combine(self.config, rollout.rewards_ext_TN, intrinsic_TN, *values, *ends)
        # update the observation statistics: policy and predictor are optimised with the new ones
        self.bonus.observe(moves.next_obs)
        with arithmetic(self.config, self.device):
            bonus_targets = in_chunks(self._bonus_targets, moves)
        means = bonus_TN.mean().double(), intrinsic_TN.mean().double(), self.scaler.carry_N.mean()
        figures = torch.stack([*means, bonus_TN.max().double(), self.scaler.moments.std])
        self.prepared = Prepared(targets, bonus_targets, figures)

    def random_start(self) -> Iterator[int]:
        """Start the observation statistics with a random agent; yields the steps done in every environment."""
        chunk, total = self.config.rollout_steps, random_steps(self.config)
        if not self.bonus.random_start or total == 0:
            return
        first = self.env.reset()
        seen = torch.empty(chunk, *first.shape, dtype=first.dtype, device=self.device)
        for step in range(1, total + 1):
            filled = (step - 1) % chunk + 1
            seen[filled - 1].copy_(self.env.step(random_actions(self.env, self.random)).obs)
            if filled == chunk or step == total:
                for obs in seen[:filled].split(at_once(self.device, self.env.num_envs)):
                    self.bonus.observe(obs)
                yield step

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next iteration depends on. Nested dicts of tensors, arrays and JSON.

        All ranks call this together; rank 0's answer holds the others' parts, and is the one to be written.
        """
        own = {
            "scaler": self.scaler.state_dict(),
            "collector": self.collector.state_dict(),
            "env": self.env.state_dict(),
            "generators": generators.save(self.generators, self.random),
        }
        return {
            "iteration": self.iteration,
            "policy": self.policy.state_dict(),
            "bonus": self.bonus.state_dict(),
            "optimizer": self.learner.state_dict(),
            "episodes": self.episodes.state_dict(),
            **own,
            "other_ranks": self.ranks.gather(own)[1:],
        }

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        """Go on from rank 0's `state`; False where the draws will differ: on another kind of device, or another number
        of ranks."""
        shared, parts = self.ranks.first(lambda: self._shared(state)), []
        if self.ranks.leads:
            own = {name: state[name] for name in ("scaler", "collector", "env", "generators")}
            parts = deal([own, *state.get("other_ranks", [])], self.ranks.world)
        own = self.ranks.deal(parts)
        self.iteration = int(shared["iteration"])
        self.policy.load_state_dict(shared["policy"])
        self.bonus.load_state_dict(shared["bonus"])
        self.learner.load_state_dict(shared["optimizer"])
        self.episodes.load_state_dict(shared["episodes"])
        self.scaler.load_state_dict(own["scaler"])
        self.collector.load_state_dict(own["collector"])
        self.env.load_state_dict(own["env"])
        if own["generators"] is None:
            self.seed_draws()
            return False
        return generators.load(own["generators"], self.generators, self.random)

    def _shared(self, state: dict[str, Any]) -> dict[str, Any]:
        """What is the same on all ranks."""
        for name, part in self.modules().items():
            missing = part.state_dict().keys() - state.get(name, {}).keys()
            if missing:
                raise RunError(f"the checkpoint lacks the state of {name}: {', '.join(sorted(missing))}")
        return {name: state[name] for name in ("iteration", "policy", "bonus", "optimizer", "episodes")}

    def seed_draws(self) -> None:
        """Generators of this rank's own; other ones where a run goes on that another number of ranks began."""
        seed, rank = self.config.seed, self.ranks.rank
        for k, generator in enumerate(self.generators.values()):
            generator.manual_seed(draw_seed(seed, k, rank, self.iteration))
        self.random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(rank,) if rank else ()))

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


def draw_seed(seed: int, stream: int, rank: int, iteration: int) -> int:
    """Seed of a generator: the run's own for the first, and hashes of it for all others, because a CPU's generator
    looks at the lower 32 bits alone."""
    if stream == rank == iteration == 0:
        return seed
    return environment_seed(environment_seed(environment_seed(seed, stream), rank), iteration)


def resolve_device(config: Config, ranks: Ranks = ALONE) -> torch.device:
    """CUDA where it is found, else the CPU; every rank of a machine has a GPU of its own."""
    name = config.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UserError(f"--device {name}: PyTorch finds no CUDA device here; nearest: --device cpu")
    if name.startswith("cuda"):
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = config.precision != "float32"
        torch.backends.cudnn.benchmark = config.fast  # shapes never change: let it look for the best kernels once
    device = torch.device(f"cuda:{ranks.local_rank}" if name == "cuda" and ranks.world > 1 else name)
    make_current(device)
    return device


def check_policy(config: Config, env: VectorEnv) -> None:
    """A policy must be able to read what the environment shows."""
    kind = env.spec.observation.kind
    if kind == "image" and config.policy == "mlp":
        raise UserError(f"{config.env.id} shows images, which --policy mlp cannot read; nearest: --policy cnn")
    if kind == "vector" and config.policy == "cnn":
        raise UserError(f"{config.env.id} shows vectors, which --policy cnn cannot read; nearest: --policy mlp")
