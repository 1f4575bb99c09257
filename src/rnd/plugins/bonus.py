"""`rnd.Bonus`: the intrinsic reward of the paper's agent, for a loop of your own.

The networks are those of `rnd.bonus`, the scale is `rnd.data.normalize.ReturnScaler`: what `rnd train` uses itself.
Here batches of your observations become steps (`rnd.plugins.steps`), which are kept until the next update.

Legend: T steps, N environments.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import threading
import warnings
from pathlib import Path
from typing import Any

import torch

from rnd.bonus import make_bonus
from rnd.checkpoint.metadata import shape_mismatch
from rnd.config import BonusOptions, Config, EnvConfig, open_options
from rnd.config.components import BONUSES
from rnd.data.normalize import ReturnScaler
from rnd.device.devices import find_device
from rnd.device.generators import draw_seed
from rnd.device.graphs import channels_last
from rnd.envs.spaces import as_array, as_tensor, like
from rnd.foundation.errors import UserError
from rnd.plugins.bonus_file import SavedBonus, read_bonus, write_bonus
from rnd.plugins.defaults import bonus_arguments, starting_config
from rnd.plugins.episodes import EpisodeFeatures, EpisodeMemory, episodes_of
from rnd.plugins.guards import anywhere
from rnd.plugins.steps import StepEncoder, Steps, joined
from rnd.training.adam import Adam, Group
from rnd.training.ppo import NonFiniteLossError

MANY_PENDING, MAX_PENDING = 2**14, 2**31
"""Steps that wait for an update when a warning says so, and bytes of observations that may wait for one."""


class Bonus:
    """An intrinsic reward with its observation statistics, its scale, and its own optimiser.

    A rollout of the paper's agent is `observe` at every step, or once with all steps, and then one `update`. Arrays
    return arrays, tensors return tensors on the device where they were.

    - `name`: rnd, dynamics, autoencoder, count, zero, snd-v, snd-vic, drnd, noveld, e3b, none, or your own
      `module:Class`.
    - `observation_space`: of one environment.
    - `num_envs`: environments that are stepped together, N.
    - `action_space`: needed by bonuses that read a_t (dynamics, snd-vic, e3b).
    - `lr`: learning rate of its optimiser, Adam.
    - `gamma`: discount of the running sum by whose std the reward is divided.
    - `epochs`, `minibatches`: of an update; a minibatch is N / minibatches whole environments. The default of the
      second is the paper's 4, or the largest number below it that divides N.
    - `update_every`: update by itself after so many steps. Without it you call `update`.
    - `device`: `auto`, `cpu`, `cuda`, `cuda:1`.
    - `seed`: of its networks and random draws.
    - `options`: those of the bonus, as `features=512, hidden=256, keep=None, clip=5.0` (docs/bonuses.md).

    What is not given of `lr`, `epochs`, `features`, `hidden` and `keep` is that of `rnd train` for the same kind of
    observations: numbers, choices, images, or frames as those of Atari (docs/plugins.md has the table).
    """

    def __init__(
        self,
        name: str,
        observation_space: Any,
        *,
        num_envs: int = 1,
        action_space: Any = None,
        gamma: float = 0.99,
        lr: float | None = None,
        epochs: int | None = None,
        minibatches: int | None = None,
        update_every: int | None = None,
        device: str = "auto",
        seed: int = 0,
        **options: Any,
    ):
        own = bonus_arguments(starting_config(observation_space), name)
        own |= {key: value for key, value in (("lr", lr), ("epochs", epochs)) if value is not None}
        lr, epochs = own.pop("lr"), own.pop("epochs")
        given = open_options(BonusOptions, own | options)
        assert isinstance(given, BonusOptions)
        config = Config(
            env=EnvConfig(id="your environment", num_envs=num_envs, frame_skip=1),
            bonus=name,
            bonus_options=given,
            policy="mlp",
            gamma_int=gamma,
            lr=lr,
            epochs=epochs,
            minibatches=math.gcd(num_envs, 4) if minibatches is None else minibatches,
            device=str(device),
            seed=seed,
            writers="none",
        )
        self._build(config, observation_space, action_space, update_every)

    def _build(
        self,
        config: Config,
        observation_space: Any,
        action_space: Any,
        update_every: int | None,
        saved: dict[str, Any] | None = None,
    ) -> None:
        """Make everything. `saved`: refuse the state of other networks, before those that `config` describes are made:
        a small file can describe large ones."""
        options: Any = BONUSES.options(config.bonus, config.bonus_options)
        config = dataclasses.replace(config, bonus_options=options)
        config.validate()
        self._lock = threading.RLock()
        if update_every is not None and update_every < 1:
            raise UserError(f"update_every must be 1 or more, not {update_every}; None: you call update()")
        self.config, self.update_every = config, update_every
        self.observation_space, self.action_space = observation_space, action_space
        self.device = torch.device(find_device(config.device))
        kind = BONUSES.load(config.bonus)
        self.reads_action: bool = kind.reads_action
        self.reads_obs: bool = kind.reads_obs or kind.reads_action
        spaces, reads = (observation_space, action_space), config.env.reads
        self.encoder = StepEncoder(config.bonus, *spaces, self.reads_obs, self.reads_action, self.device, reads)
        self.spec = self.encoder.spec(config.env.id)
        if saved is not None and (problem := shape_mismatch(config, self.spec, {"bonus": saved}, ("bonus",))):
            raise UserError(f"it {problem}")
        with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they are
            torch.manual_seed(config.seed)
            self.module = channels_last(make_bonus(config, self.spec).to(self.device))
        self.scaler = ReturnScaler(config.env.num_envs, config.gamma_int).to(self.device)
        self._episodes = episodes_of(self.module, self.num_envs, self.device)
        self._frozen_episodes: EpisodeMemory | EpisodeFeatures | None = None
        """The episodes since `freeze`."""
        self.trained = [p for p in self.module.parameters() if p.requires_grad]
        # The same optimiser as the agent's: it treats every parameter by itself, so the weights are the same too.
        self.optimizer = Adam([Group(self.trained, config.lr)]) if self.trained else None
        self.generator = torch.Generator(self.device)
        self.generator.manual_seed(draw_seed(config.seed, 1, 0, 0))
        self.frozen = False
        self.updates = 0
        self.info: dict[str, float] = {}
        """Metrics of the last update."""
        self.notes: dict[str, Any] = {}
        """Plain values that are saved too: the settings of a wrapper."""
        self._pending: list[Steps] = []
        self._waiting = 0
        """Steps in `_pending`."""

    @property
    def name(self) -> str:
        return self.config.bonus

    @property
    def num_envs(self) -> int:
        return self.config.env.num_envs

    @property
    def reads_episodes(self) -> bool:
        """It depends on earlier steps of the episode: `observe` needs `done`."""
        return self._episodes is not None

    @property
    def scale(self) -> float:
        """The running std by which raw bonuses are divided."""
        return float(self.scaler.moments.std)

    # --- rewards -------------------------------------------------------------------------------

    @anywhere
    def warm_up(self, observations: Any) -> None:
        """Add observations (any number, any leading shape) to the statistics, as those of the paper's random agent."""
        if self.module.random_start and not self.frozen:
            self.module.update_statistics(self.encoder.encoded(observations))

    @anywhere
    def score(self, next_obs: Any, obs: Any = None, actions: Any = None) -> Any:
        """Raw bonus of transitions, in the leading shape of `next_obs`, which may be any. Changes nothing.

        - `next_obs`: s_{t+1}.
        - `obs`: s_t; read by `dynamics`, `snd-vic`, `e3b` and `noveld`. The last two take every state here for the
          first of its episode.
        - `actions`: a_t; read by `dynamics`, `snd-vic` and `e3b`.
        """
        lead = self.encoder.observations.lead(next_obs)
        steps = self.encoder(next_obs, obs, actions, lead if len(lead) == 2 else (1, math.prod(lead)))
        return like(next_obs, steps.chunked(self.module.score).float().reshape(lead))

    @anywhere
    def observe(self, next_obs: Any, obs: Any = None, actions: Any = None, valid: Any = None, done: Any = None) -> Any:
        """Scaled intrinsic reward of one step (N, ...) or of a rollout (T, N, ...). Advances the running sums and the
        scale; keeps the transitions for `update`, with which the observation statistics advance too.

        A rollout is scaled by a std that knows all its steps, as in the paper; a step by one that knows the
        steps until then. The first step of all is 0: one step has no std.

        - `next_obs`: s_{t+1}; where an episode ended, its final observation.
        - `obs`, `actions`: s_t and a_t, for bonuses that read them.
        - `valid`: False where a step is no transition, as where a vector environment resets (NEXT_STEP): its reward is
          0, and nothing learns from it.
        - `done`: True where the step ended its episode, terminated or truncated; only bonuses that know their episodes
          (`noveld`, `e3b`) read it.
        """
        lead = self.encoder.observations.lead(next_obs)
        if len(lead) not in (1, 2) or lead[-1] != self.num_envs:
            n = self.num_envs
            of_all = not lead and (self.observation_space.shape or ())[:1] == (n,)
            hint = "; if the space is that of all environments, give envs.single_observation_space" if of_all else ""
            raise UserError(f"observe() reads ({n}, ...) or (T, {n}, ...) for {n} environments, not {lead}{hint}")
        shape = lead if len(lead) == 2 else (1, *lead)
        steps = self.encoder(next_obs, obs, actions, shape, valid)
        steps = self._scored(steps, done)
        if self.frozen:
            scaled_TN = self.scaler.scale(steps.raw, steps.valid)
        else:
            first = shape[0] == 1 and float(self.scaler.moments.count) < 1
            scaled_TN = self.scaler(steps.raw, None if valid is None else steps.valid) * (not first)
            self._keep(steps._replace(scaled=scaled_TN))
        return like(next_obs, scaled_TN.reshape(lead))

    @anywhere
    def freeze(self, frozen: bool = True) -> None:
        """From now on (or until `freeze(False)`) rewards change nothing: for evaluation."""
        if frozen != self.frozen:
            self._frozen_episodes = copy.deepcopy(self._episodes) if frozen else None
        self.frozen = frozen

    @anywhere
    def reset_episodes(self, reset: Any = None) -> None:
        """All environments, or those where `reset` is True, were reset without a `done`. All wrappers call it."""
        if self._episodes is not None:
            reset_N = None if reset is None else as_array(reset).astype(bool).reshape(self.num_envs)
            (self._frozen_episodes or self._episodes).reset(reset_N)

    def _scored(self, steps: Steps, done: Any) -> Steps:
        """`steps` with their raw bonus. Advances what is remembered of the episodes."""
        memory = self._frozen_episodes or self._episodes
        if memory is None:
            return steps._replace(raw=steps.chunked(self.module.score).float())
        if done is None:
            raise UserError(f"the bonus {self.name} reads where episodes end: give it done=terminated | truncated")
        assert steps.obs is not None
        done_TN = as_tensor(done).to(self.device, torch.bool).reshape(steps.valid.shape)
        if isinstance(memory, EpisodeMemory):
            ends = done_TN.cpu().numpy(), steps.valid.cpu().numpy()
            new_TN = torch.from_numpy(memory.first_visits(steps.obs, steps.next_obs, *ends)).to(self.device)
            steps = steps._replace(first_visit=new_TN)
            return steps._replace(raw=steps.chunked(self.module.score).float())
        features, start = (x.chunked(self.module.embed).float() for x in (steps, steps.before))
        return steps._replace(raw=memory(features, start, done_TN, steps.valid))

    def _keep(self, steps: Steps) -> None:
        used_T = steps.valid.any(1)
        if not bool(used_T.all()):  # steps in which all environments reset count as none
            steps = steps.part(used_T)
        self._pending.append(steps)
        self._waiting += len(steps.raw)
        if self.update_every is not None and self._waiting >= self.update_every:
            self.update()
            return
        advice = "call bonus.update() after each rollout, or make the bonus with update_every=128"
        if self._waiting * math.prod(steps.next_obs.shape[1:]) * steps.next_obs.itemsize > MAX_PENDING:
            raise UserError(f"{self._waiting:,} observed steps wait for an update; {advice}")
        if self._waiting - len(steps.raw) < MANY_PENDING <= self._waiting:
            lost = "the bonus has not learned from them, and memory grows"
            warnings.warn(f"{self._waiting:,} observed steps wait for an update: {lost}; {advice}", stacklevel=4)

    # --- learning ------------------------------------------------------------------------------

    @anywhere
    def update(self) -> dict[str, float]:
        """Learn from everything that was observed since the last update; returns metrics, or {} if that is nothing.

        First the observation statistics advance, then the predictor is trained with the new ones (section 2.4).
        """
        if self.frozen or not self._pending:
            return {}
        steps, self._pending, self._waiting = joined(self._pending), [], 0
        if not len(steps.raw):
            return {}
        whole = bool(steps.valid.all())
        self.module.update_statistics(steps.next_obs if whole else steps.next_obs[steps.valid])
        loss = self._train(steps) if self.optimizer is not None else 0.0
        self.updates += 1
        raw, scaled = steps.raw[steps.valid], steps.scaled[steps.valid]
        self.info = {
            "bonus_raw": float(raw.mean()),
            "bonus_max": float(raw.max()),
            "bonus_scaled": float(scaled.mean()),
            "bonus_scale": self.scale,
            "bonus_loss": loss,
        }
        return self.info

    @torch.enable_grad()
    def _train(self, steps: Steps) -> float:
        """Epochs over minibatches of whole environments, in a fixed order; returns the mean loss."""
        assert self.optimizer is not None
        config, size = self.config, self.num_envs // self.config.minibatches
        targets = steps.chunked(self.module.targets)
        groups = [slice(start, start + size) for start in range(0, self.num_envs, size)]
        parts = [steps.part(slice(None), rows) for rows in groups]
        batches = [(p.transitions(), targets[:, r].flatten(0, 1)[None]) for p, r in zip(parts, groups, strict=True)]
        draws = torch.rand(config.epochs, *steps.raw.shape, generator=self.generator, device=self.device)
        total = torch.zeros((), device=self.device)
        for draw_TN in draws:
            keep_TN = (draw_TN < config.keep) & steps.valid
            for rows, (transitions, target) in zip(groups, batches, strict=True):
                moves = dataclasses.replace(transitions, draw=draw_TN[:, rows].reshape(1, -1))
                loss = self.module.loss(moves, target, keep_TN[:, rows].reshape(1, -1), config.keep)
                if not bool(torch.isfinite(loss)):
                    raise NonFiniteLossError({"bonus_loss": float(loss)})
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                total += loss.detach()
        return float(total) / (config.epochs * config.minibatches)

    # --- state ---------------------------------------------------------------------------------

    @anywhere
    def state_dict(self) -> dict[str, Any]:
        """Everything that the next reward and the next update depend on: nested dicts of tensors and plain values."""
        pending = joined(self._pending)._asdict() if self._pending else {}
        return {
            "module": dict(self.module.state_dict()),
            "scaler": dict(self.scaler.state_dict()),
            "optimizer": self.optimizer.state_dict() if self.optimizer else {},
            "generator": {"device": self.device.type, "state": self.generator.get_state()},
            "pending": {name: value for name, value in pending.items() if value is not None},
            "episodes": self._episodes.state_dict() if self._episodes else {},
            "updates": self.updates,
            "frozen": self.frozen,
        }

    @anywhere
    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Continue from `state_dict()`. With another number of environments their sums start from the mean of the saved
        ones, and steps that waited for an update are dropped, as are the visits of their episodes."""
        self.module.load_state_dict(state["module"], strict)
        scaler, n = dict(state["scaler"]), self.num_envs
        same = len(scaler["carry_N"]) == n
        if not same:
            scaler["carry_N"] = scaler["carry_N"].mean().expand(n)
        self.scaler.load_state_dict(scaler, strict)
        if self.optimizer is not None:
            self.optimizer.load_state_dict(state["optimizer"])
        if state["generator"]["device"] == self.device.type:  # the draws of other devices differ
            self.generator.set_state(state["generator"]["state"].cpu())
        pending = {name: value.to(self.device) for name, value in state["pending"].items()}
        absent = dict.fromkeys(("obs", "actions", "first_visit"))
        self._pending = [Steps(**{**absent, **pending})] if pending and same else []
        self._waiting = sum(len(steps.raw) for steps in self._pending)
        if self._episodes is not None:
            if same:
                self._episodes.load_state_dict(state["episodes"])
            else:
                self._episodes.reset()
        self.updates, self.frozen, self._frozen_episodes = int(state["updates"]), False, None
        self.freeze(bool(state["frozen"]))

    def __getstate__(self) -> Any:
        raise TypeError(
            "rnd.Bonus is not pickled: write it with bonus.save(path), and read it with rnd.Bonus.load(path)"
        )

    @anywhere
    def __deepcopy__(self, memo: dict[int, Any]) -> Bonus:
        other = memo[id(self)] = type(self).__new__(type(self))
        other._lock = threading.RLock()
        own = {name: value for name, value in self.__dict__.items() if name != "_lock"}
        other.__dict__.update(copy.deepcopy(own, memo))
        return other

    def save(self, path: str | Path) -> None:
        """Write everything to one safetensors file, atomically."""
        spaces = self.observation_space, self.action_space
        write_bonus(Path(path), SavedBonus(self.config, *spaces, self.update_every, self.notes, self.state_dict()))

    @classmethod
    def load(cls, path: str | Path, device: str = "auto", num_envs: int | None = None, trusted: bool = False) -> Bonus:
        """The bonus that `save` wrote, exactly.

        - `path`: the file.
        - `device`: `auto`, `cpu`, `cuda`, `cuda:1`.
        - `num_envs`: for another number of environments.
        - `trusted`: code that it names (`module:Class`) may be imported.
        """
        path = Path(path)
        with read_bonus(path, num_envs, trusted) as saved:
            bonus = cls.__new__(cls)
            config, spaces = dataclasses.replace(saved.config, device=device), saved[1:3]
            bonus._build(config, *spaces, saved.update_every, saved=saved.state["module"])
            bonus.load_state_dict(saved.state)
            bonus.notes = saved.notes
        return bonus
