"""What all wrappers of environments share: how both rewards become one, freezing, saving and loading."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any, Literal, Self, get_args

from rnd.foundation.errors import UserError, nearest
from rnd.plugins.bonus import Bonus

Combine = Literal["sum", "info", "only"]
"""The reward of the wrapped environment: extrinsic + coef x intrinsic; the extrinsic; or coef x intrinsic."""


def check_bonus(bonus: Any) -> None:
    """Refuse what is no bonus: `RNDPPO` takes a name, the wrappers do not."""
    if not isinstance(bonus, Bonus):
        raise UserError(f"a wrapper takes a bonus that is made, not {bonus!r:.40}: rnd.Bonus('rnd', space, num_envs=8)")


class IntrinsicRewardMixin:
    """An environment whose reward knows a bonus."""

    bonus: Bonus
    coef: float
    combine: Combine

    def _use(self, bonus: Bonus, coef: float, combine: Combine, num_envs: int) -> None:
        if combine not in get_args(Combine):
            raise UserError(f"unknown combine {combine!r}; {nearest(str(combine), get_args(Combine))}")
        if not math.isfinite(coef):
            raise UserError(f"coef must be a finite number, not {coef}")
        check_bonus(bonus)
        if bonus.num_envs != num_envs:
            raise UserError(
                f"the bonus has {bonus.num_envs} environments, the wrapped one has {num_envs}; "
                f"make it with rnd.Bonus(..., num_envs={num_envs})"
            )
        self.bonus, self.coef, self.combine = bonus, coef, combine
        self._obs: Any = None

    def _remember(self, obs: Any) -> None:
        """The observation before the next step, for bonuses that read it. Environments reuse their buffers."""
        if self.bonus.reads_obs:
            self._obs = copy.deepcopy(obs)

    def _combined(self, extrinsic: Any, intrinsic: Any) -> Any:
        if self.combine == "info":
            return extrinsic
        return self.coef * intrinsic + (extrinsic if self.combine == "sum" else 0.0)

    def freeze(self, frozen: bool = True) -> None:
        """From now on (or until `freeze(False)`) the bonus does not change: for evaluation."""
        self.bonus.freeze(frozen)

    def save(self, path: str | Path) -> None:
        """Write the bonus, and the settings of this wrapper, to one safetensors file."""
        self.bonus.notes = {"coef": self.coef, "combine": self.combine}
        self.bonus.save(path)

    @classmethod
    def load(cls, path: str | Path, env: Any, device: str = "auto") -> Self:
        """Wrap an environment with the bonus and the settings that `save` wrote."""
        bonus = Bonus.load(path, device, num_envs=getattr(env, "num_envs", 1))
        make: Any = cls
        wrapped: Self = make(env, bonus, **bonus.notes)
        return wrapped
