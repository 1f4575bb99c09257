"""The loop: collect, score, returns, statistics, update. Algorithm 1 of the paper, on one screen.

Legend: T steps, N environments.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rnd.bonus import make_bonus
from rnd.config import Config
from rnd.config.components import resolve
from rnd.data.normalize import ReturnScaler, batch_moments
from rnd.data.transitions import Rollout, in_chunks, steps_per_chunk
from rnd.device import memory
from rnd.device.devices import resolve_device
from rnd.device.generators import Generators, seed_everything
from rnd.device.graphs import GraphedFunction, autocast, channels_last, compiled, in_background, uses_graphs
from rnd.distributed import SINGLE_PROCESS, Ranks
from rnd.envs.interface import VectorEnv
from rnd.foundation.stopwatch import Stopwatch
from rnd.metrics.episodes import EpisodeStats
from rnd.metrics.metrics import Row
from rnd.models.policy import make_policy
from rnd.training import state
from rnd.training.bonus_stats import BonusStats, bonus_metrics, measure
from rnd.training.make_collector import make_collector
from rnd.training.ppo import Learner
from rnd.training.random_agent import RandomAgent, needs_random_start, random_steps
from rnd.training.returns import Targets, combine, standardise


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
        spec, envs = env.spec, config.env.num_envs
        memory.check(config, spec.observation, self.device)
        self.policy = channels_last(make_policy(config, spec).to(self.device))
        self.bonus = channels_last(make_bonus(config, spec).to(self.device))
        self.scaler = ReturnScaler(
            envs,
            config.gamma_int,
            half_life=config.bonus_half_life,
            fixed=config.bonus_scale,
            maximum=config.max_bonus,
            ranks=ranks,
        )
        self.reward_scaler: ReturnScaler | None = None
        if config.normalize_reward:
            self.reward_scaler = ReturnScaler(envs, config.gamma_ext, extrinsic=True, ranks=ranks)
        self.episode_bonus = self.bonus.episode_bonus(envs)
        for module in self.modules().values():
            ranks.broadcast_(module.to(self.device))
        self.generators = Generators(config.seed, ranks.rank, self.device)
        acting, learning = self.generators.acting, self.generators.learning
        self.collector = make_collector(config, env, self.policy, self.device, acting, self.bonus.episode_memory)
        self.learner = Learner(config, spec.action, self.policy, self.bonus, learning, ranks)
        self.episodes = EpisodeStats(spec.success_return, spec.has_cells)
        self.clock = Stopwatch("learning")
        self._score = compiled(self.bonus.embed if self.episode_bonus else self.bonus.score, config, self.device)
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
            rooms = self.env.buffers["room"].tolist()  # -1 where the first room is not known
            self.episodes.update([], [room for room in rooms if room >= 0], frames=0)
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
        losses = self.learner.update(rollout, targets, bonus_targets, self.collector.after_epoch)
        self.policy.update_statistics(rollout.transitions.next_obs, self.ranks)
        return bonus_metrics(stats, self.config, self.ranks) | losses

    def prepare(self, rollout: Rollout) -> Prepared:
        """Bonus, returns and statistics of a rollout. No host synchronisation, unless ranks communicate.

        Advances in place, on the device: the running sums of the return scaling, and the observation statistics.
        """
        transitions = rollout.transitions
        # intrinsic reward of s_{t+1}, with the statistics as they were; then normalise it
        with autocast(self.config, self.device):
            bonus_TN = in_chunks(self._score, transitions).float()
        if self.episode_bonus is not None:
            bonus_TN = self.episode_bonus(bonus_TN, rollout.done_TN)
        intrinsic_TN = self.scaler(bonus_TN)
        # returns and advantages of both streams, combined
        values = rollout.values_ext_TpN, rollout.values_int_TpN
        ends = rollout.done_TN, rollout.truncation_bootstrap_TN
        extrinsic_TN = rollout.rewards_ext_TN
        if self.reward_scaler:
            extrinsic_TN = self.reward_scaler(extrinsic_TN)
        targets = combine(self.config, extrinsic_TN, intrinsic_TN, *values, *ends, self.ranks)
        if self.config.normalize_adv:
            moments = self.ranks.all_moments(*batch_moments(targets.advantages_TN.flatten()))
            targets = targets._replace(advantages_TN=standardise(targets.advantages_TN, *moments[:2]))
        # update the bonus's statistics: the predictor is optimised with the new ones. Those of the policy wait for the
        # end of the update: it is learned from what the rollout was acted with
        self.bonus.update_statistics(transitions.next_obs, self.ranks)
        with autocast(self.config, self.device):
            bonus_targets = in_chunks(self._bonus_targets, transitions)
        return Prepared(targets, bonus_targets, measure(bonus_TN, intrinsic_TN, targets, self.scaler))

    def random_start(self) -> Iterator[int]:
        """Initialise the statistics with a random agent; yields the steps done in every environment.

        On a GPU the kernels of training are compiled meanwhile.
        """
        chunk, total = self.config.rollout_steps, random_steps(self.config)
        if not needs_random_start(self.config, self.bonus) or total == 0:
            return
        if uses_graphs(self.config, self.device):
            self._compiling = in_background(self.compile, self.device)
        agent = RandomAgent(self.env, self.generators.random_agent, chunk, self.device)
        for start in range(0, total, chunk):
            obs_TNX, rewards_TN = agent.play(min(chunk, total - start))
            for obs in obs_TNX.split(steps_per_chunk(obs_TNX, self.env.num_envs)):
                if self.bonus.random_start:
                    self.bonus.update_statistics(obs, self.ranks)
                self.policy.update_statistics(obs, self.ranks)
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

    def modules(self) -> dict[str, nn.Module]:
        return {"policy": self.policy, "bonus": self.bonus, **self.env_modules()}

    def env_modules(self) -> dict[str, nn.Module]:
        """Those whose state has a row per environment, by their names in it."""
        found = {"scaler": self.scaler, "reward_scaler": self.reward_scaler, "episode_bonus": self.episode_bonus}
        return {name: module for name, module in found.items() if module is not None}

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next iteration depends on (`rnd.training.state`). All ranks call this together."""
        return state.save(self)

    def load_state_dict(self, saved: dict[str, Any]) -> bool:
        """Continue from rank 0's state. Returns False where the random draws will differ: on another kind of device,
        or with another number of ranks."""
        exact = state.load(self, saved)
        self._started = True
        return exact

    def row(self, learned: dict[str, float]) -> Row:
        """The metrics of an iteration: the same for the same seed."""
        return {
            "iteration": self.iteration,
            "frames": self.frames,
            "updates": self.iteration * self.config.epochs * self.config.minibatches,
            **self.episodes.summary(),
            **learned,
        }
