"""What a run is: frozen dataclasses with the paper's values, validation and derived sizes.

Imports nothing of ours but errors and ranges, and nothing heavy: `rnd --help` reads this file.
Section numbers refer to Burda et al. (2018).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from rnd.config.ranges import (
    Fraction,
    Frames,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Range,
    Seed,
    Threads,
    Width,
    check_ranges,
    check_types,
)
from rnd.foundation.errors import UserError, nearest

DEVICES = ("auto", "cpu", "cuda")
Reads = Literal["all", "image", "vector"]
"""What the networks read of observations with images: everything, the first image alone, or everything as a vector."""


def runtime_field(default: Any) -> Any:
    """A field that says where and how fast a run is computed. Two runs that differ in it are one experiment."""
    return field(default=default, metadata={"role": "runtime"})


def recording_field(default: Any) -> Any:
    """A field that says what is written and where."""
    return field(default=default, metadata={"role": "recording"})


def state_field(default: Any, name: str) -> Any:
    """A field of the experiment that a saved state depends on: a checkpoint fits a run with the same value only."""
    return field(default=default, metadata={"state": name})


@dataclass(frozen=True)
class EnvConfig:
    """The environments."""

    id: str = state_field("ALE/MontezumaRevenge-v5", "game")
    """Atari game, Gymnasium id (also `module:id`), or Python factory `module:function`."""
    num_envs: PositiveInt = state_field(128, "number of environments")
    """Environments stepped together (N); with several ranks, those of each."""
    workers: Annotated[int, Range(0, 1024)] | None = runtime_field(None)
    """Worker processes or emulator threads; default: all cores for Atari (one less for the native core beside
    a GPU), none (in this process) otherwise."""
    backend: Literal["auto", "native", "ale"] = runtime_field("auto")
    """Atari emulator: the native core where it is proven exact, or ale-py in worker processes."""
    translate: bool = runtime_field(True)
    """Compile the game to machine code for the native core: the same frames, faster. Needs a C++ compiler. A run of 10
    million frames or more makes the translation while it plays; shorter runs use one that is in the cache."""
    frame_skip: PositiveInt = state_field(4, "frame skip")
    """Raw frames per agent step (Atari; 1 elsewhere)."""
    sticky: Fraction = 0.25
    """Probability that a raw frame repeats the last executed action (Atari)."""
    max_episode_frames: PositiveInt = 18_000
    """Raw frames after which an Atari episode ends."""
    timeout: PositiveFloat = runtime_field(60.0)
    """Seconds after which an environment worker that does not answer is reported as hanging."""
    reads: Literal["all", "image"] = "all"
    """What of dictionaries and tuples with images is read: all (images, and the rest as a vector), or the first image
    alone. Runs of rnd 0.2 and before have read the image alone."""
    first: NonNegativeInt = runtime_field(0)
    """Number of the first environment, from which its seed follows; under torchrun rank x N."""


@dataclass(frozen=True)
class Options:
    """Options of a component (bonus, policy network, metric writer). A component declares its own by a subclass."""

    def validate(self) -> None:
        """Refuse values that cannot work."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Classes that `open_options` made have no name to be pickled by."""
        if getattr(type(self), "opened", False):
            return open_options, (type(self).__bases__[0], vars(self))
        return super().__reduce_ex__(protocol)


@dataclass(frozen=True)
class BonusOptions(Options):
    """The intrinsic reward: what all bonuses have. A bonus adds its own options by a subclass."""

    features: Width = state_field(512, "bonus features")
    """Outputs of the target and the predictor (k)."""
    hidden: Width = state_field(256, "bonus width")
    """Width of the hidden layers for vector observations."""
    keep: Fraction | None = None
    """Share of the samples that train the predictor; default 32/N, so that its batch stays that of 32 environments."""
    clip: PositiveFloat = 5.0
    """Whitened observations are clipped to [-clip, clip]."""
    random_steps: NonNegativeInt = 6_400
    """Steps of a random agent in every environment that initialise the observation statistics."""


@dataclass(frozen=True)
class PolicyOptions(Options):
    """The policy network: none that all policies have. A policy adds its own options by a subclass."""


@dataclass(frozen=True)
class WriterOptions(Options):
    """Metric writers: one group of options per writer that has any."""


@dataclass(frozen=True)
class CheckpointConfig:
    """When checkpoints are written, and how many are kept."""

    every_minutes: NonNegativeFloat = recording_field(10.0)
    """Minutes between checkpoints; they are written after every tenth of the run too; 0: neither."""
    every_iterations: NonNegativeInt = recording_field(0)
    """Iterations between checkpoints; 0: by time only."""
    keep_last: PositiveInt = recording_field(2)
    """Newest checkpoints that are kept, beside the best one."""


@dataclass(frozen=True)
class Config:
    """One run. The defaults are the paper's run on Atari; presets change them for small problems."""

    env: EnvConfig = EnvConfig()
    bonus_options: BonusOptions = BonusOptions()
    policy_options: PolicyOptions = PolicyOptions()
    writer_options: WriterOptions = WriterOptions()
    checkpoint: CheckpointConfig = CheckpointConfig()

    bonus: str = state_field("rnd", "bonus")
    """Intrinsic reward: rnd, dynamics, autoencoder, count, zero, snd-v, snd-vic, drnd, noveld, e3b, none, or your
    own `module:Class`."""
    policy: str = state_field("cnn", "policy")
    """Policy network: cnn, gru, mlp, or your own `module:Class`."""

    frames: Frames = 1_966_080_000
    """Environment frames of the whole run, also as 600k or 1.5M. The paper's run has 1,966,080,000: 30,000 rollouts of
    128 x 128 steps x 4 frames."""
    rollout_steps: PositiveInt = state_field(128, "rollout")
    """Steps per rollout in every environment (T)."""
    epochs: PositiveInt = 4
    """Passes over a rollout."""
    minibatches: PositiveInt = 4
    """Minibatches per epoch; each is N / minibatches whole environments."""
    shuffle: bool = False
    """Draw the minibatches of every epoch from all transitions of the rollout, for policies without memory. The paper's
    are whole environments in a fixed order."""

    lr: PositiveFloat = 1e-4
    """Adam's learning rate."""
    bonus_lr: PositiveFloat | None = None
    """Learning rate of the bonus's own networks (RND's predictor); default: --lr."""
    gamma_ext: Fraction = 0.999
    """Discount of the extrinsic stream."""
    gamma_int: Fraction = 0.99
    """Discount of the intrinsic stream."""
    gae_lambda: Fraction = 0.95
    """Lambda of generalised advantage estimation, both streams."""
    ext_coef: NonNegativeFloat = 2.0
    """Weight of the extrinsic advantage; 0 trains on the bonus alone."""
    int_coef: NonNegativeFloat = 1.0
    """Weight of the intrinsic advantage."""
    clip_range: PositiveFloat = 0.1
    """PPO's clipping range."""
    entropy_coef: NonNegativeFloat = 0.001
    """Weight of the entropy bonus."""
    value_coef: NonNegativeFloat = 0.5
    """Weight of the squared value errors."""
    episodic_int: bool = False
    """Cut the intrinsic stream at an episode's end (section 2.3; the paper's default does not)."""
    train_ext_value: bool = True
    """Train the extrinsic value head. Off, with --ext-coef 0: nothing that is learned depends on the extrinsic reward
    (section 3.1; the authors' release trains the head all the same)."""
    value_heads: Literal[1, 2] = 2
    """2: one value head per stream. 1: one head for the summed rewards, both episodic (Figure 4)."""
    clip_reward: bool = True
    """Learn from the sign of the extrinsic reward; returns are reported unclipped."""
    normalize_obs: bool = state_field(False, "normalised observations")
    """Whiten the vectors that the policy reads, by their running mean and std. What is one-hot stays as it is."""
    normalize_reward: bool = state_field(False, "normalised rewards")
    """Divide extrinsic rewards by the running root mean square of their discounted returns, where that exceeds 1."""
    normalize_adv: bool = False
    """Give the combined advantages of a rollout mean 0 and std 1. The paper does not."""
    bootstrap_truncated: bool = False
    """Bootstrap the extrinsic value at a time limit. The paper treats the limit as an ordinary end."""
    overlap: bool = False
    """Collect the next rollout while the update runs, one iteration behind (not the paper's synchronous loop). Needs
    less time per frame, and more frames; with --overlap-refresh epoch fewer of them."""
    overlap_refresh: Literal["rollout", "epoch"] = "rollout"
    """With --overlap, when the acting policy takes over the learner's weights: before every rollout, or also after
    every epoch, at fixed steps of the rollout."""
    bonus_half_life: PositiveFloat | None = None
    """Samples after which an earlier bonus counts half in the scale that bonuses are divided by; default: all count the
    same, as in the paper."""
    bonus_scale: PositiveFloat | None = None
    """Divide bonuses by this number; default: by the running std of their discounted sum, as in the paper."""
    max_bonus: PositiveFloat | None = None
    """Largest reward that a bonus gives once it is scaled; default: any, as in the paper."""
    min_bonus_share: Annotated[float, Range(0, 0.9)] = 0.0
    """Least share of the bonus in the std of the weighted returns: where --int-coef gives less, it is raised for that
    rollout. 0: never, as in the paper."""
    max_grad_norm: PositiveFloat | None = None
    """Clip the norm of the gradient, of policy and predictor together; default: it is not clipped, as in the paper."""
    target_kl: PositiveFloat | None = None
    """Once the KL divergence of a minibatch from the policy that acted exceeds this, the policy takes no more steps in
    that rollout; the predictor learns on. Default: it takes all, as in the paper."""

    seed: Seed = field(default=1, metadata={"role": "seed"})
    """Seed of everything: networks, actions, masks, environments."""
    device: str = runtime_field("auto")
    """auto, cpu, cuda or cuda:N."""
    precision: Literal["tf32", "float32", "bf16"] = runtime_field("tf32")
    """Matrix arithmetic. tf32, on CUDA, has operands with a mantissa of 10 bits; a CPU then computes in float32. bf16
    pays on CPUs that have AMX."""
    fast: bool = runtime_field(True)
    """Compiled kernels and CUDA graphs on a GPU; --no-fast runs the same functions without them."""
    threads: Threads | None = runtime_field(None)
    """CPU threads for the networks; default: PyTorch's choice."""
    ranks: PositiveInt = runtime_field(1)
    """Processes of this run, each with environments of its own; torchrun sets it."""

    out: str = recording_field("runs")
    """Folder that holds run folders."""
    name: str | None = recording_field(None)
    """Name of the run folder; default: environment, bonus, policy and seed."""
    writers: str = recording_field("tensorboard")
    """Metric writers beside metrics.csv, separated by commas: tensorboard, wandb, none, or your own `module:Class`."""

    # --- derived sizes -------------------------------------------------------------------------

    @property
    def all_envs(self) -> int:
        """Environments of all ranks."""
        return self.ranks * self.env.num_envs

    @property
    def frames_per_rollout(self) -> int:
        """Frames of all ranks together."""
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
    def has_int_stream(self) -> bool:
        """Whether the intrinsic stream has a value head of its own: not in plain PPO, where it would be noise."""
        return self.value_heads == 2 and self.bonus != "none"

    @property
    def run_name(self) -> str:
        if self.name is not None:
            return self.name
        plain = f"{self.env.id.removeprefix('ALE/').lower()}-{self.bonus}-{self.policy}-s{self.seed}"
        return plain.replace("/", "-").replace(":", "-")

    def validate(self) -> None:
        """Refuse what cannot run, in one line that says what would."""
        check_ranges(self)
        for options in (self.bonus_options, self.policy_options, self.writer_options):
            options.validate()
        if self.env.frame_skip != 1 and not self.env.id.startswith("ALE/"):
            raise UserError(f"--env.frame-skip is for Atari: a step of {self.env.id} is one frame; nearest: 1")
        n, m = self.env.num_envs, self.minibatches
        if n % m:
            lower, upper = n // m * m, (n // m + 1) * m
            near = upper if lower == 0 or upper - n <= n - lower else lower
            raise UserError(f"{n} environments do not divide into {m} minibatches; nearest: --env.num-envs {near}")
        if self.device not in DEVICES and not self.device.startswith("cuda:"):
            raise UserError(f"unknown device {self.device!r}; {nearest(self.device.replace('gpu', 'cuda'), DEVICES)}")
        if self.ext_coef == 0 and (self.int_coef == 0 or self.bonus == "none"):
            raise UserError(
                "both reward streams are switched off: nothing would be learned; "
                "set --ext-coef 2, or choose --bonus rnd with --int-coef 1"
            )
        if not self.train_ext_value and (self.ext_coef > 0 or self.value_heads == 1):
            raise UserError("--no-train-ext-value needs --ext-coef 0 and two value heads: advantages use that head")
        if self.overlap_refresh == "epoch" and not self.overlap:
            raise UserError("--overlap-refresh epoch needs --overlap: without it the newest weights act always")
        if self.bonus_half_life is not None and self.bonus_scale is not None:
            raise UserError("--bonus-half-life is about the running scale, which --bonus-scale replaces; leave one out")
        if self.min_bonus_share and not self.has_int_stream:
            raise UserError("--min-bonus-share needs a bonus and two value heads: it raises the weight of the second")
        if self.value_heads == 1 and not self.episodic_int and self.bonus != "none":
            raise UserError("one value head needs an episodic intrinsic stream; add --episodic-int")

    # --- plain data ----------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Config:
        """The inverse of `to_dict`. Imports nothing: options that a component declares itself are read as they are, and
        `rnd.config.components.resolve` checks them."""
        values = dict(data)
        values["env"] = with_reads(values.get("env", {}), values.get("policy"))
        for name, group in (("env", EnvConfig), ("checkpoint", CheckpointConfig)):
            values[name] = _construct(group, values.get(name, {}), name + ".")
        for name, base in OPTION_GROUPS.items():
            values[name] = open_options(base, values.get(name, {}))
        config = _construct(Config, values, "")
        assert isinstance(config, Config)
        return config

    def flat(self) -> dict[str, Any]:
        """{"env.num_envs": 128, ...} in the order of the definition."""
        return {name: value for name, value, _ in _leaves(self)}

    def named(self, role: str) -> list[str]:
        """Dotted names of the fields of a role: experiment, seed, runtime or recording."""
        return [name for name, _, metadata in _leaves(self) if metadata.get("role", "experiment") == role]

    def state_names(self) -> dict[str, str]:
        """Dotted names of the fields that a saved state depends on, and what people call them."""
        return {name: metadata["state"] for name, _, metadata in _leaves(self) if "state" in metadata}


def with_reads(env: dict[str, Any], policy: str | None) -> dict[str, Any]:
    """The plain data of an `EnvConfig`. Where rnd 0.2 or before wrote it, the first image alone was read; but for those
    observations that have never had two parts, or that are read as vectors."""
    known = "id" not in env or "reads" in env or policy == "mlp" or str(env["id"]).startswith(("ALE/", "rnd/"))
    return env if known else env | {"reads": "image"}


OPTION_GROUPS: dict[str, type[Options]] = {
    "bonus_options": BonusOptions,
    "policy_options": PolicyOptions,
    "writer_options": WriterOptions,
}


def open_options(base: type[Options], values: dict[str, Any]) -> Options:
    """Options of a component that is not known here: `base`, with a field for every value that it lacks."""
    values = {name: open_options(Options, v) if isinstance(v, dict) else v for name, v in values.items()}
    values = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    known = {f.name for f in dataclasses.fields(base)}
    check_types(base, values)
    extra = {name: type(v) if isinstance(v, Options) else Any for name, v in values.items() if name not in known}
    kind: Any = base
    if extra:
        kind = _opened(kind, *sorted(extra.items(), key=str))
    options: Options = kind(**values)
    return options


@functools.cache
def _opened(base: Any, *extra: tuple[str, Any]) -> Any:
    """One class per set of fields, so that equal options are equal."""
    fields = [(name, kind, field(default=None)) for name, kind in extra]
    return dataclasses.make_dataclass(base.__name__, fields, bases=(base,), namespace={"opened": True}, frozen=True)


def _leaves(group: Any, prefix: str = "") -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Dotted name, value and metadata of every field of a dataclass and of those in it."""
    for item in dataclasses.fields(group):
        value = getattr(group, item.name)
        if dataclasses.is_dataclass(value):
            yield from _leaves(value, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, value, item.metadata


def _construct(cls: type[Any], values: dict[str, Any], prefix: str) -> Any:
    known = {f.name for f in dataclasses.fields(cls)}
    for name in values:
        if name not in known:
            raise UserError(f"unknown config field {prefix}{name}; {nearest(name, known)}")
    check_types(cls, values, prefix)
    return cls(**values)
