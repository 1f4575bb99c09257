"""The forward dynamics read the stack and the action; RND reads neither."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from bonus_cases import ACTIONS, IMAGE, OBSERVATIONS, VECTOR, make, started, transitions

from rnd.data.transitions import Transitions
from rnd.envs.spec import ActionSpec
from rnd.models.actions import encode


@pytest.mark.parametrize("action", ACTIONS.values(), ids=ACTIONS)
@pytest.mark.parametrize("observation", OBSERVATIONS.values(), ids=OBSERVATIONS)
def test_permuting_actions_changes_the_dynamics_and_not_rnd(observation, action):
    moves = transitions(observation, action, steps=6, envs=2)
    permuted = replace(moves, actions=moves.actions.flip(0))
    dynamics, distillation = (started(name, observation, action) for name in ("dynamics", "rnd"))
    assert not torch.allclose(dynamics.predict(moves), dynamics.predict(permuted))
    assert torch.equal(dynamics.target_of(moves), dynamics.target_of(permuted))
    assert torch.equal(distillation.score(moves), distillation.score(permuted))


def test_the_action_enters_before_each_of_the_three_layers():
    predictor = make("dynamics", IMAGE).predictor
    assert [layer.in_features for layer in predictor.layers] == [64 * 7 * 7 + 5, 32 + 5, 32 + 5]
    assert predictor.torso[0].in_channels == 4


def test_the_dynamics_learn_what_the_action_does():
    """s' = the action's own state, whatever s: only a predictor that reads the action can learn it."""
    states = torch.randn(5, 10, generator=torch.Generator().manual_seed(3))
    actions = torch.arange(40) % 5
    moves = Transitions.pairs(torch.zeros(40, 10), actions, states[actions])
    bonus = started("dynamics", VECTOR)
    bonus.update_statistics(moves.next_obs)
    optimizer = torch.optim.Adam(bonus.predictor.parameters(), lr=3e-3)
    before = bonus.score(moves).mean()
    for _ in range(150):
        optimizer.zero_grad()
        bonus.loss(moves, bonus.targets(moves), torch.ones(1, 40, dtype=torch.bool), 1.0).backward()
        optimizer.step()
    assert bonus.score(moves).mean() < before / 20
    wrong = replace(moves, actions=(moves.actions + 1) % 5)
    assert bonus.score(wrong).mean() > before / 4


def test_frames_before_the_start_are_whitened_as_black_frames():
    moves = transitions(IMAGE, steps=2, envs=2)
    bonus = started("dynamics", IMAGE)
    seen = []
    bonus.predictor.torso.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    bonus.score(moves)
    stack = seen[0].unflatten(0, (2, 2))[1, 0]  # the first environment starts an episode at step 1
    black = bonus.whiten(torch.zeros(84, 84, dtype=torch.uint8))
    assert all(torch.equal(frame, black) for frame in stack[:3])
    assert torch.equal(stack[3], bonus.whiten(moves.obs[1, 0, 3]))


def test_actions_are_encoded_by_hand():
    assert encode(ActionSpec("discrete", (3,)), torch.tensor([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]
    multi = encode(ActionSpec("multi_discrete", (2, 3)), torch.tensor([[1, 0]]))
    assert multi.tolist() == [[0, 1, 1, 0, 0]]
    box = torch.tensor([[0.5, -2.0]])
    assert torch.equal(encode(ActionSpec("continuous", (2,)), box), box)
