"""Observations, actions and transitions on which every bonus is tested."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from rnd.bonus.base import BonusModule
from rnd.config import BonusOptions, components
from rnd.data.transitions import Transitions
from rnd.envs.packed import join
from rnd.envs.spec import ActionSpec, ObservationSpec

IMAGE, VECTOR = ObservationSpec("image", (84, 84)), ObservationSpec("vector", (10,))
MIXED = ObservationSpec("mixed", (2 * 84 * 84 + 4 * 3,), images=2)
"""Two images and three numbers."""
DISCRETE = ActionSpec("discrete", (5,))
MULTI = ActionSpec("multi_discrete", (3, 4))
CONTINUOUS = ActionSpec("continuous", (2,), (-1.0, -1.0), (1.0, 1.0))

OBSERVATIONS = {"image": IMAGE, "vector": VECTOR}
ACTIONS = {"discrete": DISCRETE, "multi": MULTI, "continuous": CONTINUOUS}
BONUSES = tuple(components.BONUSES)
LEARNING = tuple(name for name in BONUSES if name != "none")
TRAINED = tuple(name for name in LEARNING if name != "count")
"""Bonuses with networks."""
EPISODIC = ("e3b",)
"""Bonuses that fall within an episode, not by training."""
TRAINED_TARGETS = ("snd-v", "snd-vic")
OTHER_LOSS = (*TRAINED_TARGETS, *EPISODIC, "drnd", "noveld")
"""Bonuses whose loss is not the mean of their scores."""


def make(name: str, observation: ObservationSpec, action: ActionSpec = DISCRETE, seed: int = 0) -> BonusModule:
    torch.manual_seed(seed)
    options = components.BONUSES.options(name, BonusOptions(features=32, hidden=32))
    return components.BONUSES.load(name)(observation, action, options)


def observations(observation: ObservationSpec, *shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if observation.kind == "image":
        return torch.randint(0, 256, (*shape, *observation.shape), generator=generator, dtype=torch.uint8)
    numbers = torch.randn(*shape, observation.vector_size, generator=generator)
    if observation.kind == "vector":
        return numbers
    pixels = torch.randint(0, 256, (*shape, observation.pixels), generator=generator, dtype=torch.uint8)
    return join(pixels, numbers)


def transitions(
    observation: ObservationSpec, action: ActionSpec = DISCRETE, steps: int = 4, envs: int = 3, seed: int = 0
) -> Transitions:
    """Random transitions; the first environment starts an episode at step 1."""
    generator = torch.Generator().manual_seed(seed + 1)
    stack = observation.stack
    age = torch.full((steps + 1, envs), stack - 1, dtype=torch.int8)
    age[1:, 0] = torch.arange(steps).clamp_max(stack - 1)
    return Transitions(
        observations(observation, stack + steps, envs, seed=seed),
        age,
        actions(action, steps, envs, generator=generator),
        stack,
        draw=torch.rand(steps, envs, generator=generator),
    )


def actions(spec: ActionSpec, *shape: int, generator: torch.Generator) -> Tensor:
    if spec.kind == "continuous":
        return torch.randn(*shape, *spec.sizes, generator=generator)
    parts = [torch.randint(0, size, shape, generator=generator) for size in spec.sizes]
    return parts[0] if spec.kind == "discrete" else torch.stack(parts, dim=-1)


def started(name: str, observation: ObservationSpec, action: ActionSpec = DISCRETE, seed: int = 0) -> BonusModule:
    """A bonus whose statistics know the distribution of the observations."""
    bonus = make(name, observation, action, seed)
    bonus.update_statistics(observations(observation, 64, seed=99))
    return bonus


def everything(moves: Transitions) -> Tensor:
    """A mask that keeps all transitions."""
    return torch.ones(moves.actions.shape[:2], dtype=torch.bool)


def train(bonus: BonusModule, moves: Transitions, updates: int = 40, lr: float = 3e-3) -> None:
    """What an agent does with a rollout, with an optimiser of its own."""
    bonus.update_statistics(moves.next_obs)
    targets = bonus.targets(moves)
    trained = [p for p in bonus.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=lr) if trained else None
    generator = torch.Generator().manual_seed(updates)
    for _ in range(updates):
        moves = replace(moves, draw=torch.rand(moves.actions.shape[:2], generator=generator))
        loss = bonus.loss(moves, targets, everything(moves), 1.0)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
