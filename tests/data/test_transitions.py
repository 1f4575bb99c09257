"""Windows over single frames equal stacks built one step at a time."""

import torch

from rnd.data.transitions import Transitions


def rollout(stack=4, steps=9, envs=3, seed=0):
    random = torch.Generator().manual_seed(seed)
    frames = torch.randint(1, 256, (stack + steps, envs, 2, 2), dtype=torch.uint8, generator=random)
    first = torch.rand(steps + 1, envs, generator=random) < 0.3
    first[0] = True
    age = torch.zeros(steps + 1, envs, dtype=torch.int8)
    for t in range(1, steps + 1):
        age[t] = torch.where(first[t], 0, (age[t - 1] + 1).clamp_max(stack - 1))
    actions = torch.zeros(steps, envs, dtype=torch.int64)
    return Transitions(frames, age, actions, stack), first


def test_windows_equal_stacks_built_by_hand():
    moves, first = rollout()
    stack = torch.zeros(3, 4, 2, 2, dtype=torch.uint8)
    for t in range(9):
        newest = moves.frames[3 + t]
        for n in range(3):
            if first[t, n]:
                stack[n] = 0  # frames before the episode's start are zero
            stack[n] = torch.cat([stack[n, 1:], newest[n][None]])
        assert torch.equal(moves.obs[t], stack)


def test_next_obs_is_the_following_newest_frame():
    moves, _ = rollout()
    assert torch.equal(moves.next_obs[:-1], moves.frames[4:-1])
    assert torch.equal(moves.next_obs[2], moves.windows(3, 4)[0][:, -1])


def test_parts_agree_with_the_whole():
    moves, _ = rollout()
    assert torch.equal(moves.steps(2, 6).obs, moves.obs[2:6])
    assert torch.equal(moves.steps(2, 6).next_obs, moves.next_obs[2:6])
    assert torch.equal(moves.envs(slice(1, 3)).obs, moves.obs[:, 1:3])


def test_vectors_are_not_stacked():
    frames = torch.arange(12.0).view(4, 3, 1)
    moves = Transitions(frames, torch.zeros(4, 3, dtype=torch.int8), torch.zeros(3, 3), stack=1)
    assert torch.equal(moves.obs, frames[:3])
    assert torch.equal(moves.next_obs, frames[1:])


def test_pairs_for_agents_with_their_own_buffers():
    obs, actions, following = torch.rand(5, 2), torch.zeros(5), torch.rand(5, 2)
    moves = Transitions.pairs(obs, actions, following)
    assert torch.equal(moves.obs[0], obs)
    assert torch.equal(moves.next_obs[0], following)
