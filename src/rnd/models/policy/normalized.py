"""Any policy for vectors, with its vectors whitened (`--normalize-obs`). Images beside them stay as they are.

Legend: B any leading shape, T steps, N environments, H hidden size, X the shape of one observation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rnd.data.normalize import Whitener
from rnd.distributed import SINGLE_PROCESS, Ranks
from rnd.envs.packed import join, split
from rnd.envs.spec import ObservationSpec
from rnd.models.policy.base import Policy, PolicyOutput

CLIP = 10.0
"""Standard deviations from the mean at which an observation is clipped, as in Stable-Baselines3's VecNormalize."""


class NormalizedPolicy(Policy):
    """A policy that reads whitened numbers; what is one-hot stays as it is: rare choices would become large numbers.

    The statistics change between iterations only (`update_statistics`): a rollout is learned from as it was acted in.
    """

    one_hot: Tensor

    def __init__(self, policy: Policy, observation: ObservationSpec):
        super().__init__()
        self.policy, self.whiten = policy, Whitener((observation.vector_size,), CLIP)
        self.pixels = observation.pixels
        self.hidden_size, self.compilable = policy.hidden_size, policy.compilable
        # No list of the observation's length: an agent of a stranger may announce any (`load_agent` builds it on meta).
        numbers = torch.zeros(observation.vector_size, dtype=torch.bool)
        one_hot = torch.tensor(observation.one_hot) if observation.one_hot else numbers
        self.register_buffer("one_hot", one_hot)

    def update_statistics(self, obs: Tensor, ranks: Ranks = SINGLE_PROCESS) -> None:
        self.whiten.update(split(obs, self.pixels)[1] if self.pixels else obs, ranks)

    def forward(self, obs_BX: Tensor, hidden_BH: Tensor) -> tuple[PolicyOutput, Tensor]:
        result: tuple[PolicyOutput, Tensor] = self.policy(self.normalized(obs_BX), hidden_BH)
        return result

    def unroll(self, obs_TNX: Tensor, hidden_NH: Tensor, first_TN: Tensor) -> PolicyOutput:
        return self.policy.unroll(self.normalized(obs_TNX), hidden_NH, first_TN)

    def normalized(self, obs_BX: Tensor) -> Tensor:
        if self.pixels:
            image, vector = split(obs_BX, self.pixels)
            return join(image, self.numbers(vector))
        return self.numbers(obs_BX)

    def numbers(self, vector_BV: Tensor) -> Tensor:
        return torch.where(self.one_hot, vector_BV, self.whiten(vector_BV))
