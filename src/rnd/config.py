"""What a run is: frozen dataclasses with the paper's values, validation and derived sizes.

Imports nothing of ours but the error type, and nothing heavy: `rnd --help` reads this file.
Section numbers refer to Burda et al. (2018).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from rnd.errors import UserError, nearest

POLICIES = ("cnn", "gru", "mlp")
DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class EnvConfig:
    """The environments."""

    id: str = "ALE/MontezumaRevenge-v5"
    """Atari game, Gymnasium id, or Python factory `module:function`."""
    num_envs: int = 128
    """Environments stepped together (N); with several ranks, those of each."""
    workers: int | None = None
    """Worker processes or emulator threads; default: all cores for Atari (one less for the native core beside
    a GPU), none (in this process) otherwise."""
    backend: Literal["auto", "native", "ale"] = "auto"
    """Atari emulator: the native core where it is proven exact, or ale-py in worker processes."""
    frame_skip: int = 4
    """Raw frames an agent step (Atari; 1 elsewhere)."""
    sticky: float = 0.25
    """Probability that a raw frame repeats the last executed action (Atari)."""
    max_episode_frames: int = 18_000
    """Raw frames after which an Atari episode ends."""
    timeout: float = 60.0
    """Seconds after which a silent environment worker is reported as hanging."""
    first: int = 0
    """Number of the first environment, from which its seed follows; under torchrun rank x N."""


@dataclass(frozen=True)
class BonusConfig:
    """The intrinsic reward."""

    features: int = 512
    """Outputs of the target and the predictor (k)."""
    hidden: int = 256
    """Width of the hidden layers for vector observations."""
    keep: float | None = None
    """Share of the samples that train the predictor; default 32/N, so that its batch stays that of 32 environments."""
    clip: float = 5.0
    """Whitened observations are clipped to [-clip, clip]."""
    random_steps: int = 6_400
    """Steps of a random agent in every environment that start the observation statistics."""
    count_power: Literal["1", "0.5"] = "0.5"
    """Count bonus only: n to the power of -1 or -1/2."""


@dataclass(frozen=True)
class CheckpointConfig:
    """When the run saves itself, and what it keeps."""

    every_minutes: float = 10.0
    """Minutes between checkpoints; 0 switches the clock off."""
    every_iterations: int = 0
    """Iterations between checkpoints; 0 leaves it to the clock."""
    keep_last: int = 2
    """Checkpoints kept, the newest first, beside the best one."""


@dataclass(frozen=True)
class Config:
    """One run. The defaults are the paper's run on Atari; presets change them for small problems."""

    env: EnvConfig = field(default_factory=EnvConfig)
    bonus_options: BonusConfig = field(default_factory=BonusConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)

    bonus: str = "rnd"
    """Intrinsic reward: rnd, dynamics, autoencoder, count, zero, none, or one that you have registered."""
    policy: Literal["cnn", "gru", "mlp"] = "cnn"
    """Policy network."""
    policy_width: int = 64
    """Width of the MLP policy; the CNN and the GRU have the paper's sizes."""
    policy_kernel: Literal[3, 4] = 4
    """Third convolution of the CNN and the GRU: 4 x 4 as in the authors' release, or 3 x 3 as in the encoder that the
    paper cites."""

    frames: int = 1_966_080_000
    """Environment frames of the whole run: 30,000 rollouts of 128 x 128 steps x 4 frames."""
    rollout_steps: int = 128
    """Steps of a rollout in every environment (T)."""
    epochs: int = 4
    """Passes over a rollout."""
    minibatches: int = 4
    """Minibatches an epoch; each is N / minibatches whole environments."""

    lr: float = 1e-4
    """Adam's learning rate."""
    gamma_ext: float = 0.999
    """Discount of the extrinsic stream."""
    gamma_int: float = 0.99
    """Discount of the intrinsic stream."""
    gae_lambda: float = 0.95
    """Lambda of generalised advantage estimation, both streams."""
    ext_coef: float = 2.0
    """Weight of the extrinsic advantage; 0 trains on the bonus alone."""
    int_coef: float = 1.0
    """Weight of the intrinsic advantage."""
    clip_range: float = 0.1
    """PPO's clipping range."""
    entropy_coef: float = 0.001
    """Weight of the entropy bonus."""
    value_coef: float = 0.5
    """Weight of the squared value errors."""
    episodic_int: bool = False
    """Cut the intrinsic stream at an episode's end (section 2.3; the paper's default does not)."""
    value_heads: Literal[1, 2] = 2
    """2: a value head a stream. 1: one head for the summed rewards, both episodic (Figure 4)."""
    clip_reward: bool = True
    """Learn from the sign of the extrinsic reward; returns are reported unclipped."""
    bootstrap_truncated: bool = False
    """Continue the extrinsic value past a time limit. The paper treats the limit as an ordinary end."""

    seed: int = 1
    """Seed of everything: networks, actions, masks, environments."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    precision: Literal["tf32", "float32", "bf16"] = "tf32"
    """Matrix arithmetic on CUDA; the CPU always computes in float32."""
    fast: bool = True
    """Compiled or graphed kernels where the device has them; --no-fast runs the plain path."""
    overlap: bool = False
    """Collect the next rollout while the update runs, one iteration behind (not the paper's synchronous loop)."""
    threads: int | None = None
    """CPU threads for the networks; default: PyTorch's choice."""
    ranks: int = 1
    """Processes of this run, each with environments of its own; torchrun sets it."""

    out: str = "runs"
    """Folder that holds run folders."""
    name: str | None = None
    """Name of the run folder; default: environment, bonus, policy and seed."""
    wandb: bool = False
    """Also log to Weights & Biases, where it is installed."""

    # --- derived sizes -------------------------------------------------------------------------

    @property
    def all_envs(self) -> int:
        """Environments of all ranks."""
        return self.ranks * self.env.num_envs

    @property
    def frames_per_rollout(self) -> int:
        """Of all ranks together."""
        return self.all_envs * self.rollout_steps * self.env.frame_skip

    @property
    def iterations(self) -> int:
        return max(1, math.ceil(self.frames / self.frames_per_rollout))

    @property
    def keep(self) -> float:
        """Share of samples that the predictor trains on."""
        if self.bonus_options.keep is not None:
            return self.bonus_options.keep
        return min(1.0, 32 / self.all_envs)

    @property
    def run_name(self) -> str:
        game = self.env.id.removeprefix("ALE/").replace("/", "-").replace(":", "-").lower()
        return f"{game}-{self.bonus}-{self.policy}-s{self.seed}" if self.name is None else self.name

    def validate(self) -> None:
        """Refuse what cannot run, in one line that says what would."""
        positive(self, "frames", "rollout_steps", "epochs", "minibatches", "policy_width", "lr", "clip_range", "ranks")
        positive(self, "threads")
        positive(self.env, "num_envs", "frame_skip", "max_episode_frames", "timeout", prefix="env.")
        positive(self.bonus_options, "features", "hidden", "clip", prefix="bonus-options.")
        _not_negative(self, "ext_coef", "int_coef", "entropy_coef", "value_coef", "seed")
        _not_negative(self.checkpoint, "every_minutes", "every_iterations", prefix="checkpoint.")
        positive(self.checkpoint, "keep_last", prefix="checkpoint.")
        _not_negative(self.bonus_options, "random_steps", prefix="bonus-options.")
        _not_negative(self.env, "first", prefix="env.")
        for name in ("gamma_ext", "gamma_int", "gae_lambda"):
            _in_range(name, getattr(self, name), 0.0, 1.0)
        _in_range("env.sticky", self.env.sticky, 0.0, 1.0)
        _in_range("bonus-options.keep", self.keep, 0.0, 1.0)
        if self.seed >= 2**64:
            raise UserError(f"--seed must be below 2^64, not {self.seed}; the default is 1")
        if self.env.frame_skip != 1 and not self.env.id.startswith("ALE/"):
            raise UserError(f"--env.frame-skip is for Atari: a step of {self.env.id} is one frame; nearest: 1")
        if self.env.workers is not None and self.env.workers < 0:
            raise UserError(f"--env.workers must be 0 or more, not {self.env.workers}; try 2")
        n, m = self.env.num_envs, self.minibatches
        if n % m:
            lower, upper = n // m * m, (n // m + 1) * m
            near = upper if lower == 0 or upper - n <= n - lower else lower
            raise UserError(f"{n} environments do not divide into {m} minibatches; nearest: --env.num-envs {near}")
        if self.device not in DEVICES and not self.device.startswith("cuda:"):
            raise UserError(f"unknown device {self.device!r}; {nearest(self.device, DEVICES)}")
        if self.ext_coef == 0 and (self.int_coef == 0 or self.bonus == "none"):
            raise UserError(
                "both reward streams are switched off: nothing would be learned; "
                "set --ext-coef 2, or choose --bonus rnd with --int-coef 1"
            )
        if self.value_heads == 1 and not self.episodic_int and self.bonus != "none":
            raise UserError("one value head needs an episodic intrinsic stream; add --episodic-int")

    # --- plain data ----------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Config:
        groups = {"env": EnvConfig, "bonus_options": BonusConfig, "checkpoint": CheckpointConfig}
        values = dict(data)
        for name, group in groups.items():
            values[name] = _construct(group, values.get(name, {}), name + ".")
        config = _construct(Config, values, "")
        assert isinstance(config, Config)
        return config


def _construct(cls: type[Any], values: dict[str, Any], prefix: str) -> Any:
    known = {f.name for f in dataclasses.fields(cls)}
    for name in values:
        if name not in known:
            raise UserError(f"unknown config field {prefix}{name}; {nearest(name, known)}")
    return cls(**values)


def _flag(prefix: str, name: str) -> str:
    return "--" + prefix + name.replace("_", "-")


def positive(group: Any, *names: str, prefix: str = "") -> None:
    """Refuse flags that are 0 or less; those that are left out (None) pass."""
    for name in names:
        value = getattr(group, name)
        if value is not None and (not value > 0 or not math.isfinite(value)):
            default = _default(group, name)
            hint = "leave it out" if default is None else f"the default is {default}"
            raise UserError(f"{_flag(prefix, name)} must be greater than 0, not {value}; {hint}")


def _not_negative(group: Any, *names: str, prefix: str = "") -> None:
    for name in names:
        value = getattr(group, name)
        if not value >= 0 or not math.isfinite(value):
            default = _default(group, name)
            raise UserError(f"{_flag(prefix, name)} must be 0 or more, not {value}; the default is {default}")


def _in_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        near = min(max(value, low), high) if math.isfinite(value) else high
        raise UserError(f"{_flag('', name)} must be between {low:g} and {high:g}, not {value:g}; nearest: {near:g}")


def _default(group: Any, name: str) -> Any:
    return next(f.default for f in dataclasses.fields(group) if f.name == name)
