"""Prediction errors as bonuses: what `rnd`, `dynamics`, `autoencoder` and `zero` share.

Legend: B = T·N transitions of T steps and N environments, C kept ones, k features, F the shape of an answer.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor

from rnd.bonus.contract import Bonus, kept
from rnd.config import BonusConfig
from rnd.envs.spec import ObservationSpec
from rnd.normalize import Whitener
from rnd.transitions import Transitions


class PredictionBonus(Bonus):
    """i_t = mean squared difference between a trained guess and a fixed answer, on whitened observations."""

    capturable = True
    answers_once = True
    """Keep the answers of a rollout while it is optimised; False where making them again costs less than the memory."""

    def __init__(self, observation: ObservationSpec, config: BonusConfig):
        super().__init__()
        self.image = observation.kind == "image"
        self.whiten = Whitener(observation.shape, config.clip)

    @abstractmethod
    def guess(self, transitions: Transitions) -> Tensor:
        """What the trained part says, [B, F]."""

    @abstractmethod
    def answer(self, transitions: Transitions) -> Tensor:
        """What it should have said, [B, F]."""

    def observe(self, next_obs: Tensor) -> None:
        self.whiten.update(next_obs)

    @torch.no_grad()
    def score(self, transitions: Transitions) -> Tensor:
        error_B = squared_error(self.guess(transitions), self.answer(transitions))
        return error_B.view(transitions.actions.shape[:2])

    @torch.no_grad()
    def targets(self, transitions: Transitions) -> Tensor:
        if not self.answers_once:
            return super().targets(transitions)
        answer_BF = self.answer(transitions)
        return answer_BF.view(*transitions.actions.shape[:2], *answer_BF.shape[1:])

    def loss(self, transitions: Transitions, targets: Tensor, keep_TN: Tensor, share: float) -> Tensor:
        index_C, weight_C = kept(keep_TN, share)
        picked = transitions.pick(index_C)
        answer_CF = targets.flatten(0, 1)[index_C] if self.answers_once else self.answer(picked).detach()
        return (squared_error(self.guess(picked), answer_CF) * weight_C).sum()

    def newest(self, transitions: Transitions) -> Tensor:
        """The whitened newest frame of s_{t+1}, [B, 1, 84, 84], or the whitened vector [B, X]."""
        whitened: Tensor = self.whiten(transitions.next_obs.flatten(0, 1))
        return whitened.unsqueeze(1) if self.image else whitened


def squared_error(guess_BF: Tensor, answer_BF: Tensor) -> Tensor:
    """Mean over everything but the first axis. The paper sums; the scale is divided out of the bonus later."""
    return (guess_BF.float() - answer_BF.float()).square().flatten(1).mean(1)
