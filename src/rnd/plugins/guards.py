"""What protects a bonus: from threads that call it at once, and from files that announce more than they hold."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from rnd.config import Config
from rnd.envs.spaces import encoded_size
from rnd.foundation.errors import UserError

FREE_NUMBERS = 2**20
"""Numbers of an observation for which a saved bonus needs no weights: counts have none."""

P = ParamSpec("P")
R = TypeVar("R")


def anywhere(method: Callable[P, R]) -> Callable[P, R]:
    """A method that threads may call, one after the other: an update must not change what another thread reads.

    Environments are stepped without gradients, also in inference mode, whose tensors no update could read."""

    @functools.wraps(method)
    def alone(*arguments: P.args, **named: P.kwargs) -> R:
        bonus: Any = arguments[0]
        with bonus._lock, torch.inference_mode(False):
            return method(*arguments, **named)

    return alone


def check_sizes(config: Config, state: dict[str, Any], observation_space: dict[str, Any]) -> None:
    """Refuse numbers of environments and observations that the saved tensors do not have, before memory is taken for
    them: a small file can announce any."""
    saved, announced = len(state["scaler"]["carry_N"]), config.env.num_envs
    if saved != announced:
        raise UserError(f"it has the sums of {saved} environments instead of {announced}")
    size, weights = encoded_size(observation_space), sum(x.numel() for x in state["module"].values())
    if size > max(weights, FREE_NUMBERS):
        raise UserError(f"its observations have {size:,} numbers, for which its {weights:,} weights are too few")
