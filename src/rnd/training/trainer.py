"""The loop: collect, score, returns, statistics, update. Algorithm 1 of the paper, on one screen.

Legend: T steps, N environments.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rnd.bonus import make_bonus
from rnd.bonus.base import BonusModule
from rnd.config import Config
from rnd.config.components import resolve
from rnd.data.normalize import ReturnScaler, batch_moments
from rnd.data.transitions import Rollout, in_chunks, steps_per_chunk
from rnd.device import generators, memory
from rnd.device.graphs import (
    GraphedFunction,
    autocast,
    channels_last,
    compile_sums,
    compiled,
    find_device,
    in_background,
    set_device,
    uses_graphs,
)
from rnd.distributed import SINGLE_PROCESS, Ranks, sync_statistics
from rnd.envs.interface import VectorEnv
from rnd.envs.splitmix import environment_seed
from rnd.foundation.errors import RunError
from rnd.foundation.stopwatch import Stopwatch
from rnd.metrics.episodes import EpisodeStats
from rnd.metrics.metrics import Row
from rnd.models.policy import make_policy
from rnd.training.collector import Collector
from rnd.training.overlap import OverlappedCollector
from rnd.training.ppo import Learner
from rnd.training.random_agent import RandomAgent
from rnd.training.returns import Targets, combine, standardise

PER_RANK = ("collector", "env", "generators")
"""Entries of the state that each rank has its own of, beside the scalers."""


class BonusStats(NamedTuple):
    """Scalars of one rollout for the metrics."""

    raw: Tensor
    scaled: Tensor
    discounted_sum: Tensor
    """Mean over the environments of the running sum of raw bonuses."""
    raw_square: Tensor
    """Means of squares, which ranks can average: of the raw bonus, and below of the two streams' returns."""
    ext_mean: Tensor
    ext_square: Tensor
    int_mean: Tensor
    int_square: Tensor
    largest: Tensor
    scale: Tensor


class Prepared(NamedTuple):
    """What the update needs beside the rollout."""

    targets: Targets
    bonus_targets: Tensor
    stats: BonusStats


class Trainer:
    """Everything that has state in a run, in the order in which data flows.

    Call `random_start`, `start` and then `train`; or `load_state_dict` and then `train`.
    """

    def __init__(self, config: Config, env: VectorEnv, ranks: Ranks = SINGLE_PROCESS):
        config = resolve(config)
        self.config, self.env, self.ranks = config, env, ranks
        self.device = resolve_device(config, ranks)
        self.iteration = 0
        self._started = False
        seed_everything(config)
        spec = env.spec
        memory.check(config, spec.observation, self.device)
        self.policy = channels_last(make_policy(config, spec).to(self.device))
        self.bonus = channels_last(make_bonus(config, spec).to(self.device))
        self.scaler = ReturnScaler(config.env.num_envs, config.gamma_int).to(self.device)
        self.reward_scaler: ReturnScaler | None = None
        if config.normalize_reward:
            self.reward_scaler = ReturnScaler(config.env.num_envs, config.gamma_ext, extrinsic=True).to(self.device)
        for module in self.modules().values():
            ranks.broadcast_(module)
            sync_statistics(module, ranks)
        # Acting and learning may overlap, so each draws from its own generator.
        acting, learning = torch.Generator(self.device), torch.Generator(self.device)
        self.generators = {"acting": acting, "learning": learning}
        self.random = np.random.default_rng()
        self.seed_draws()
        collector = Collector(config, env, self.policy, self.device, acting, self.bonus.episode_memory)
        self.collector = OverlappedCollector(collector) if config.overlap else collector
        self.learner = Learner(config, spec.action, self.policy, self.bonus, learning, ranks)
        self.episodes = EpisodeStats(spec.success_return, spec.has_cells)
        self.clock = Stopwatch("learning")
        self._score = compiled(self.bonus.score, config, self.device)
        self._bonus_targets = compiled(self.bonus.targets, config, self.device)
        captured = ranks.world == 1 and self.bonus.capturable
        self._prepare = GraphedFunction(self.prepare, config, self.device) if captured else self.prepare
        self._compiling: Future[None] | None = None

    @property
    def frames(self) -> int:
        return self.iteration * self.config.frames_per_rollout

    def start(self) -> None:
        """Reset the environments: the first observations, and the rooms in which the first episodes start."""
        self.collector.start()
        if self.env.spec.has_rooms:
            self.episodes.update([], self.env.buffers["room"].tolist(), frames=0)
        self._set_started()

    def _set_started(self) -> None:
        if not self._started:
            # not before: the random agent's sums need not wait until the compiler is imported
            compile_sums(self.bonus, self.config, self.device)
        self._started = True

    def train(self) -> Iterator[Row]:
        """Algorithm 1 of the paper; one row of metrics per iteration."""
        assert self._started, "call start() or load_state_dict() before train()"
        if self._compiling is not None:
            self._compiling.result()
        while self.iteration < self.config.iterations:
            # sample a_t ~ policy, and s_{t+1}, e_t from the environments
            rollout = self.collector.collect(last=self.iteration + 1 >= self.config.iterations)
            infos = self.ranks.gather((rollout.episodes, rollout.rooms_entered))
            with self.clock("learning"), self.collector.learner_stream():
                learned = self.learn(rollout)
            self.iteration += 1
            for episodes, rooms_entered in infos:
                self.episodes.update(episodes, rooms_entered, self.frames)
            yield self.row(learned)

    def learn(self, rollout: Rollout) -> dict[str, float]:
        """Everything of an iteration but acting: advances statistics, networks and optimiser, returns metrics."""
        targets, bonus_targets, stats = self._prepare(rollout)
        losses = self.learner.update(rollout, targets, bonus_targets)
        self.policy.update_statistics(rollout.transitions.next_obs)
        self.ranks.all_mean_(stats[:-2])
        values = dict(zip(BonusStats._fields, torch.stack(stats).tolist(), strict=True))  # one device-to-host copy
        spread = std(values["raw"], values["raw_square"])
        ext = self.config.ext_coef * std(values["ext_mean"], values["ext_square"])
        int_ = self.config.int_coef * std(values["int_mean"], values["int_square"])
        return {
            "bonus_raw": values["raw"],
            "bonus_max": self.ranks.all_max(values["largest"])[0],
            "bonus_scaled": values["scaled"],
            "bonus_scale": values["scale"],
            "return_int": values["discounted_sum"] / values["scale"],
            "bonus_spread": spread / values["raw"] if values["raw"] else 0.0,
            "bonus_share": int_ / (ext + int_) if int_ else 0.0,
            **losses,
        }

    def prepare(self, rollout: Rollout) -> Prepared:
        """BonusModule, returns and statistics of a rollout. No host synchronisation, unless ranks communicate.

        Advances in place, on the device: the running sums of the return scaling, and the observation statistics.
        """
        transitions = rollout.transitions
        # intrinsic reward of s_{t+1}, with the statistics as they were; then normalise it
        with autocast(self.config, self.device):
            bonus_TN = in_chunks(self._score, transitions).float()
        intrinsic_TN = self.scaler(bonus_TN)
        # returns and advantages of both streams, combined
        values = rollout.values_ext_TpN, rollout.values_int_TpN
        ends = rollout.done_TN, rollout.truncation_bootstrap_TN
        extrinsic_TN = rollout.rewards_ext_TN
        if self.reward_scaler:
            extrinsic_TN = self.reward_scaler(extrinsic_TN)
        targets = combine(self.config, extrinsic_TN, intrinsic_TN, *values, *ends)
        if self.config.normalize_adv:
            moments = self.ranks.all_moments(*batch_moments(targets.advantages_TN.flatten()))
            targets = targets._replace(advantages_TN=standardise(targets.advantages_TN, *moments[:2]))
        # update the bonus's statistics: the predictor is optimised with the new ones. Those of the policy wait for the
        # end of the update: it is learned from what the rollout was acted with
        self.bonus.update_statistics(transitions.next_obs)
        with autocast(self.config, self.device):
            bonus_targets = in_chunks(self._bonus_targets, transitions)
        stats = BonusStats(
            raw=bonus_TN.mean().double(),
            scaled=intrinsic_TN.mean().double(),
            discounted_sum=self.scaler.mean_return,
            raw_square=bonus_TN.double().square().mean(),
            ext_mean=targets.returns_ext_TN.double().mean(),
            ext_square=targets.returns_ext_TN.double().square().mean(),
            int_mean=targets.returns_int_TN.double().mean(),
            int_square=targets.returns_int_TN.double().square().mean(),
            largest=bonus_TN.max().double(),
            scale=self.scaler.moments.std,
        )
        return Prepared(targets, bonus_targets, stats)

    def random_start(self) -> Iterator[int]:
        """Initialise the statistics with a random agent; yields the steps done in every environment.

        On a GPU the kernels of training are compiled meanwhile.
        """
        chunk, total = self.config.rollout_steps, random_steps(self.config)
        if not needs_random_start(self.config, self.bonus) or total == 0:
            return
        if uses_graphs(self.config, self.device):
            self._compiling = in_background(self.compile, self.device)
        agent = RandomAgent(self.env, self.random, chunk, self.device)
        for start in range(0, total, chunk):
            obs_TNX, rewards_TN = agent.play(min(chunk, total - start))
            for obs in obs_TNX.split(steps_per_chunk(self.device, self.env.num_envs)):
                if self.bonus.random_start:
                    self.bonus.update_statistics(obs)
                self.policy.update_statistics(obs)
            if self.reward_scaler:
                self.reward_scaler(rewards_TN.sign() if self.config.clip_reward else rewards_TN)
            yield start + len(obs_TNX)

    def compile(self) -> None:
        """Compile what training launches, on buffers that hold nothing yet. Changes no state."""
        rollout = self.collector.compile()
        with autocast(self.config, self.device):
            in_chunks(self._score, rollout.transitions)
            bonus_targets = in_chunks(self._bonus_targets, rollout.transitions)
        self.learner.compile(rollout, Targets(*[torch.zeros_like(rollout.logp_TN)] * 3), bonus_targets)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next iteration depends on. Nested dicts of tensors, arrays and JSON.

        All ranks call this together. That of rank 0 holds the states of the others, and is the one to be written.
        """
        own = {
            **{name: scaler.state_dict() for name, scaler in self.scalers().items()},
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
        """Continue from rank 0's `state`. Returns False where the random draws will differ: on another kind of device,
        or with another number of ranks."""
        shared, states = self.ranks.on_rank0(lambda: self._shared(state)), []
        if self.ranks.is_rank0:
            own_names = (*self.scalers(), *PER_RANK)
            states = self.reshard([{name: state[name] for name in own_names}, *state.get("other_ranks", [])])
        own = self.ranks.scatter(states)
        self.iteration = int(shared["iteration"])
        self.policy.load_state_dict(shared["policy"])
        self.bonus.load_state_dict(shared["bonus"])
        self.learner.load_state_dict(shared["optimizer"])
        self.episodes.load_state_dict(shared["episodes"])
        for name, scaler in self.scalers().items():
            scaler.load_state_dict(own[name])
        self.collector.load_state_dict(own["collector"])
        self.env.load_state_dict(own["env"])
        self._set_started()
        if own["generators"] is None:
            self.seed_draws()
            return False
        return generators.load(own["generators"], self.generators, self.random)

    def reshard(self, states: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One state per rank from the states of another number of ranks. Generators cannot be split: they are seeded
        anew."""
        world = self.ranks.world
        if len(states) == world:
            return states
        owners = {**self.scalers(), "collector": self.collector, "env": self.env}
        of = {name: owner.reshard([state[name] for state in states], world) for name, owner in owners.items()}
        return [{name: states[rank] for name, states in of.items()} | {"generators": None} for rank in range(world)]

    def _shared(self, state: dict[str, Any]) -> dict[str, Any]:
        """What is the same on all ranks."""
        for name, module in self.modules().items():
            missing = module.state_dict().keys() - state.get(name, {}).keys()
            if missing:
                raise RunError(f"the checkpoint lacks the state of {name}: {', '.join(sorted(missing))}")
        return {name: state[name] for name in ("iteration", "policy", "bonus", "optimizer", "episodes")}

    def seed_draws(self) -> None:
        """Seed this rank's generators; differently where a run continues that another number of ranks began."""
        seed, rank = self.config.seed, self.ranks.rank
        for k, generator in enumerate(self.generators.values()):
            generator.manual_seed(draw_seed(seed, k, rank, self.iteration))
        self.random = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(rank,) if rank else ()))

    def modules(self) -> dict[str, nn.Module]:
        return {"policy": self.policy, "bonus": self.bonus, **self.scalers()}

    def scalers(self) -> dict[str, ReturnScaler]:
        """Those of the rewards, by their names in the state."""
        return {"scaler": self.scaler} | ({"reward_scaler": self.reward_scaler} if self.reward_scaler else {})

    def row(self, learned: dict[str, float]) -> Row:
        """The metrics of an iteration: the same for the same seed."""
        return {
            "iteration": self.iteration,
            "frames": self.frames,
            "updates": self.iteration * self.config.epochs * self.config.minibatches,
            **self.episodes.summary(),
            **learned,
        }


def std(mean: float, mean_square: float) -> float:
    return math.sqrt(max(mean_square - mean**2, 0.0))


def needs_random_start(config: Config, bonus: BonusModule) -> bool:
    """Whether statistics of observations are initialised by a random agent: those of the bonus or of the policy."""
    return bonus.random_start or config.normalize_obs


def random_steps(config: Config) -> int:
    """Steps of the random agent in every environment: at most a tenth of the run."""
    return min(config.bonus_options.random_steps, config.iterations * config.rollout_steps // 10)


def seed_everything(config: Config) -> None:
    random.seed(config.seed)
    np.random.seed(config.seed % 2**32)
    torch.manual_seed(config.seed)
    if config.threads:
        torch.set_num_threads(config.threads)


def draw_seed(seed: int, number: int, rank: int, iteration: int) -> int:
    """Seed of a generator: the run's own for the first, and hashes of it for all others, because a CPU's generator
    uses the lower 32 bits only."""
    if number == rank == iteration == 0:
        return seed
    return environment_seed(environment_seed(environment_seed(seed, number), rank), iteration)


def resolve_device(config: Config, ranks: Ranks = SINGLE_PROCESS) -> torch.device:
    """CUDA where it is found, else the CPU; one GPU per rank. Sets PyTorch's global switches for it."""
    name = find_device(config.device)
    if name.startswith("cuda"):
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = config.precision != "float32"
        torch.backends.cudnn.benchmark = config.fast  # shapes never change: search for the best kernels once
    device = torch.device(f"cuda:{ranks.local_rank}" if name == "cuda" and ranks.world > 1 else name)
    set_device(device)
    return device
