"""NovelD (Zhang et al. 2021): how much a step raises the novelty of RND, at the first visit within an episode."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rnd.bonus.prediction import squared_error
from rnd.bonus.rnd import RND
from rnd.config import BonusOptions
from rnd.config.ranges import Fraction, PositiveInt
from rnd.data.transitions import Transitions
from rnd.envs.spec import ActionSpec, ObservationSpec


class NovelD(RND):
    """i_t = max(novelty(s_{t+1}) - alpha novelty(s_t), 0) where s_{t+1} is visited for the first time in its episode,
    else 0. The novelty is the distance between predictor and target, not squared. Trained as RND is."""

    @dataclass(frozen=True)
    class Options(BonusOptions):
        """NovelD."""

        alpha: Fraction = 0.5
        """Share of the novelty of s_t that is subtracted."""
        memory: PositiveInt = 4_500
        """Steps of an episode in which earlier visits are found. An Atari episode has at most 4,500."""

    reads_obs = True
    episode_memory = 4_500

    def __init__(self, observation: ObservationSpec, action: ActionSpec, options: Options):
        super().__init__(observation, action, options)
        self.alpha, self.episode_memory = options.alpha, options.memory

    @torch.no_grad()
    def score(self, transitions: Transitions) -> Tensor:
        obs = self.whitened(transitions.newest)
        novelty = squared_error(self.predictor(obs), self.target(obs)).sqrt().view(transitions.age.shape)
        rise_TN = (novelty[1:] - self.alpha * novelty[:-1]).clamp_min(0)
        # without the episode's earlier steps (a single transition) every visit is the first
        return rise_TN if transitions.first_visit is None else rise_TN * transitions.first_visit
