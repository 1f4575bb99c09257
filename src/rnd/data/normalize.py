"""Running statistics: observation whitening and intrinsic return scaling (section 2.4).

Legend: T steps, N environments, K blocks, B samples.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rnd.distributed import SINGLE_PROCESS, Ranks, check_keys, reshard_rows
from rnd.envs.packed import split
from rnd.envs.spec import ObservationSpec

START_COUNT = 1e-4
MIN_VARIANCE = 1e-12
CHUNK = 2**24
"""Numbers converted to float64 at a time: bounds the memory, with few enough launches for a GPU."""
BLOCK = 256
"""Bytes whose squares add up to less than 2**24, where float32 is exact."""
STEPS_PER_PRODUCT = 256
"""Steps whose discounted sums are one product with a T x T matrix; longer rollouts are several, one after the other, so
that memory grows with T and not with its square."""
BLOCKS_AT_ONCE = {"cpu": 1, "cuda": 64}
"""Blocks per call: few for a CPU's cache, many to fill a GPU."""


class RunningMoments(nn.Module):
    """Mean and variance of a sequence, float64, merged batch by batch (Chan et al., parallel variance)."""

    mean: Tensor
    var: Tensor
    count: Tensor

    def __init__(self, shape: tuple[int, ...] = (), half_life: float | None = None):
        """`half_life`: samples after which an earlier sample counts half; None: all count the same."""
        super().__init__()
        self.half_life = half_life
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("var", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.tensor(START_COUNT, dtype=torch.float64))

    @torch.no_grad()
    def update(self, batch: Tensor, ranks: Ranks = SINGLE_PROCESS) -> None:
        """Add samples [B, *shape], those of all ranks. Changes the buffers in place."""
        self.merge(*ranks.all_moments(*batch_moments(batch)))

    @torch.no_grad()
    def merge(self, mean: Tensor, var: Tensor, count: float) -> None:
        """Add a batch that is given by its moments."""
        earlier = self.count if self.half_life is None else self.count * 0.5 ** (count / self.half_life)
        new_mean, new_var, new_count = merge_moments((self.mean, self.var, earlier), (mean, var, count))
        self.mean.copy_(new_mean)
        self.var.copy_(new_var)
        self.count.fill_(new_count)

    @property
    def std(self) -> Tensor:
        return self.var.clamp_min(MIN_VARIANCE).sqrt()


Moments = tuple[Tensor, Tensor, Tensor | float]


def byte_sums(bytes_KB: Tensor) -> tuple[Tensor, Tensor]:
    """Sums of bytes and of their squares over K blocks of BLOCK, float64. All are whole numbers that float32 holds for
    a block: exact, in whatever order they are added."""
    values = bytes_KB.float()
    return values.sum(1).double().sum(0), (values * values).sum(1).double().sum(0)


def batch_moments(batch: Tensor) -> tuple[Tensor, Tensor, float]:
    """Mean, biased variance and count over the first axis, in float64."""
    if batch.dtype == torch.uint8:
        return byte_moments(batch)
    total: Moments | None = None
    for chunk in batch.split(max(CHUNK // max(batch[0].numel(), 1), 1)):
        var, mean = torch.var_mean(chunk.double(), dim=0, correction=0)
        moments: Moments = (mean, var, float(len(chunk)))
        total = moments if total is None else merge_moments(total, moments)
    assert total is not None, "no samples"
    return total[0], total[1], float(total[2])


def byte_moments(batch: Tensor) -> tuple[Tensor, Tensor, float]:
    """The same for bytes; the last line is exact for every batch of less than 372,000 samples."""
    n, at_once = len(batch), BLOCKS_AT_ONCE[batch.device.type]
    whole = n - n % BLOCK
    blocks = [*batch[:whole].unflatten(0, (-1, BLOCK)).split(at_once), batch[whole:].unsqueeze(0)]
    total = torch.zeros(batch.shape[1:], dtype=torch.float64, device=batch.device)
    squares = torch.zeros_like(total)
    for bytes_KB in blocks:
        if bytes_KB.numel():
            more, more_squares = byte_sums(bytes_KB)
            total += more
            squares += more_squares
    return total / n, (n * squares - total.square()) / n**2, float(n)


def merge_moments(a: Moments, b: Moments) -> Moments:
    """Moments of the union of two samples."""
    mean_a, var_a, count_a = a
    mean_b, var_b, count_b = b
    count = count_a + count_b
    delta = mean_b - mean_a
    mean = mean_a + delta * (count_b / count)
    var = (var_a * count_a + var_b * count_b + delta.square() * (count_a * count_b / count)) / count
    return mean, var, count


class Whitener(nn.Module):
    """clip((x - mean) / std, -clip, clip), per pixel or per component."""

    def __init__(self, shape: tuple[int, ...], clip: float):
        super().__init__()
        self.moments = RunningMoments(shape)
        self.clip = clip

    def update(self, obs: Tensor, ranks: Ranks = SINGLE_PROCESS) -> None:
        """Update the statistics with observations [..., *shape], those of all ranks."""
        self.moments.update(obs.reshape(-1, *self.moments.mean.shape), ranks)

    def forward(self, obs: Tensor) -> Tensor:
        mean, std = self.moments.mean.float(), self.moments.std.float()
        return (obs.float() - mean).div_(std).clamp_(-self.clip, self.clip)


class MixedWhitener(Whitener):
    """The same for images and a vector in one row of bytes: a row of floats, whitened per pixel and per component."""

    def __init__(self, observation: ObservationSpec, clip: float):
        super().__init__((observation.pixels + observation.vector_size,), clip)
        self.pixels = observation.pixels

    def update(self, obs: Tensor, ranks: Ranks = SINGLE_PROCESS) -> None:
        parts = [part for part in split(obs.reshape(-1, obs.shape[-1]), self.pixels) if part.shape[1]]
        means, variances, (count, *_) = zip(*map(batch_moments, parts), strict=True)
        self.moments.merge(*ranks.all_moments(torch.cat(means), torch.cat(variances), count))

    def forward(self, obs: Tensor) -> Tensor:
        image, vector = split(obs, self.pixels)
        whitened: Tensor = super().forward(torch.cat([image.float(), vector], dim=-1))
        return whitened


def make_whitener(observation: ObservationSpec, clip: float) -> Whitener:
    return MixedWhitener(observation, clip) if observation.kind == "mixed" else Whitener(observation.shape, clip)


class ReturnScaler(nn.Module):
    """Divides rewards by the running std of their discounted sum.

    The sum runs forward in time, R_t = gamma R_{t-1} + i_t, for every environment, from one rollout into the next, and
    is never reset at an episode's end. No mean is subtracted.

    `extrinsic`: divides by the root mean square of the sum instead, because the errors of a value grow with its size,
    and never by less than 1, because the first reward of a sparse task must not be blown up.
    `half_life`: see `RunningMoments`. `fixed`: divide by this number instead. `maximum`: of what is returned.
    `ranks`: the processes whose sums are counted together.
    """

    carry_N: Tensor
    fixed: Tensor | None

    def __init__(
        self,
        num_envs: int,
        gamma: float,
        *,
        extrinsic: bool = False,
        half_life: float | None = None,
        fixed: float | None = None,
        maximum: float | None = None,
        ranks: Ranks = SINGLE_PROCESS,
    ):
        super().__init__()
        self.gamma, self.extrinsic, self.maximum, self.ranks = gamma, extrinsic, maximum, ranks
        self.moments = RunningMoments(half_life=half_life)
        number = None if fixed is None else torch.tensor(fixed, dtype=torch.float64)
        self.register_buffer("fixed", number, persistent=False)
        self.register_buffer("carry_N", torch.zeros(num_envs, dtype=torch.float64))

    @torch.no_grad()
    def forward(self, rewards_TN: Tensor, valid_TN: Tensor | None = None) -> Tensor:
        """Scale one rollout. Advances the running sums and the statistics in place first.

        `valid`: False where a step is no transition (a vector environment resets in it). The sum stays as it was."""
        if valid_TN is None:
            sums_TN = discounted_sums(rewards_TN.double(), self.carry_N, self.gamma)
            self.carry_N.copy_(sums_TN[-1])
            self.moments.update(sums_TN.reshape(-1), self.ranks)
            return self.scale(rewards_TN)
        sums = []
        for reward_N, valid_N in zip(rewards_TN.double(), valid_TN, strict=True):
            sum_N = discounted_sums(reward_N[None], self.carry_N, self.gamma)[0]
            self.carry_N.copy_(torch.where(valid_N, sum_N, self.carry_N))
            sums.append(sum_N[valid_N])
        if valid_TN.any():
            self.moments.update(torch.cat(sums), self.ranks)
        return self.scale(rewards_TN, valid_TN)

    def scale(self, rewards_TN: Tensor, valid_TN: Tensor | None = None) -> Tensor:
        """`rewards` divided by the std as it is; 0 where they are not valid. Changes nothing."""
        scaled_TN = (rewards_TN / self.divisor).float()
        if self.maximum is not None:
            scaled_TN = scaled_TN.clamp_max(self.maximum)
        return scaled_TN if valid_TN is None else scaled_TN.where(valid_TN, 0.0)

    @property
    def divisor(self) -> Tensor:
        """What rewards are divided by."""
        if self.fixed is not None:
            return self.fixed
        if not self.extrinsic:
            return self.moments.std
        return (self.moments.var + self.moments.mean.square()).sqrt().clamp_min(1.0)

    @property
    def mean_return(self) -> Tensor:
        """Mean over the environments of the running sum, unscaled."""
        return self.carry_N.mean()

    @staticmethod
    def shared_state(state: dict[str, Any]) -> dict[str, Any]:
        """What a state holds beside the environments' own sums."""
        return {name: value for name, value in state.items() if name != "carry_N"}

    @staticmethod
    def reshard(states: list[dict[str, Any]], world: int) -> list[dict[str, Any]]:
        """States of `world` ranks from those of another number: each has the sums of its own environments."""
        check_keys(states[0], ("carry_N", "moments.mean", "moments.var", "moments.count"), "the return scaler")
        shares = reshard_rows([state["carry_N"] for state in states], world)
        return [states[0] | {"carry_N": carry_N} for carry_N in shares]


def discounted_sums(rewards_TN: Tensor, carry_N: Tensor, gamma: float) -> Tensor:
    """R_t = gamma R_{t-1} + r_t forward in time, as products with a lower triangular matrix."""
    if len(rewards_TN) == 1:
        return rewards_TN + gamma * carry_N
    steps = torch.arange(STEPS_PER_PRODUCT, device=rewards_TN.device, dtype=rewards_TN.dtype)[: len(rewards_TN)]
    lag_TT = steps[:, None] - steps[None, :]
    weight_TT = torch.where(lag_TT >= 0, gamma ** lag_TT.clamp_min(0), 0.0)
    decay_T = gamma ** (steps[:, None] + 1)
    sums = []
    for block_TN in rewards_TN.split(STEPS_PER_PRODUCT):
        size = len(block_TN)
        sums.append(weight_TT[:size, :size] @ block_TN + decay_T[:size] * carry_N)
        carry_N = sums[-1][-1]
    return sums[0] if len(sums) == 1 else torch.cat(sums)
