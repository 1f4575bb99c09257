"""No bonus: plain PPO without a special case in the agent."""

from __future__ import annotations

from torch import Tensor

from rnd.bonus.base import BonusModule
from rnd.config import BonusOptions
from rnd.data.transitions import Transitions
from rnd.envs.spec import ActionSpec, ObservationSpec


class NoBonus(BonusModule):
    """Zero everywhere, nothing to learn."""

    random_start = False
    capturable = True

    def __init__(self, observation: ObservationSpec, action: ActionSpec, options: BonusOptions):
        super().__init__()

    def score(self, transitions: Transitions) -> Tensor:
        return transitions.age.new_zeros(transitions.actions.shape[:2]).float()

    def loss(self, transitions: Transitions, targets: Tensor, keep_TN: Tensor, share: float) -> Tensor:
        return transitions.age.new_zeros(()).float()
