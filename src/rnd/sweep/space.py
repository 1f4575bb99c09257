"""What a sweep searches: fields of the config and the values that are tried for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from rnd.api import starting_config, with_changes
from rnd.config import Config
from rnd.config.config import OPTION_GROUPS
from rnd.config.flags import declared, whole_number
from rnd.config.presets import BONUS_CHANGES, with_bonus
from rnd.foundation.errors import UserError, nearest


@dataclass(frozen=True)
class Between:
    """A number from `low` to `high`: every factor is equally likely, or from 0 on every difference."""

    low: float
    high: float

    def suggest(self, trial: Any, name: str) -> Any:
        """The value that an Optuna trial takes."""
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        draw = trial.suggest_int if whole else trial.suggest_float
        return draw(name, self.low, self.high, log=self.on_log_scale)

    @property
    def on_log_scale(self) -> bool:
        return self.low > 0

    def including(self, value: Any) -> Between:
        return Between(min(self.low, value), max(self.high, value))

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}"


@dataclass(frozen=True)
class OneOf:
    """One of a few values."""

    values: tuple[Any, ...]

    def suggest(self, trial: Any, name: str) -> Any:
        """The value that an Optuna trial takes."""
        return trial.suggest_categorical(name, self.values)

    def including(self, value: Any) -> OneOf:
        if value in self.values:
            return self
        numbers = all(isinstance(v, int | float) for v in (*self.values, value))
        return OneOf(tuple(sorted((*self.values, value))) if numbers else (value, *self.values))

    def __str__(self) -> str:
        return ",".join(map(str, self.values))


@dataclass(frozen=True)
class Times:
    """From the value that the field starts with, divided by `factor`, to that value times `factor`."""

    factor: float


Values = Between | OneOf
Space = dict[str, Values]
"""Dotted name of a field to its values. The value of the config that the sweep starts from is always one of them."""

RANGES: dict[str, OneOf | Times] = {
    "lr": Times(5),
    "bonus_lr": Times(10),
    "entropy_coef": Times(10),
    "int_coef": Times(5),
    "ext_coef": Times(5),
    "value_coef": Times(5),
    "gamma_ext": OneOf((0.95, 0.98, 0.99, 0.995, 0.999)),
    "gamma_int": OneOf((0.95, 0.98, 0.99, 0.995, 0.999)),
    "gae_lambda": OneOf((0.9, 0.95, 0.98, 1.0)),
    "clip_range": OneOf((0.1, 0.2, 0.3)),
    "epochs": OneOf((1, 2, 4, 8)),
    "minibatches": OneOf((1, 2, 4, 8)),
    "rollout_steps": OneOf((32, 64, 128, 256)),
    "env.num_envs": OneOf((8, 16, 32, 64)),
    "max_grad_norm": OneOf((None, 0.5, 5.0)),
    "bonus": OneOf(("rnd", "noveld", "e3b", "count", "none")),
    "bonus_options.keep": OneOf((0.25, 0.5, 1.0)),
    "bonus_options.features": OneOf((32, 64, 128, 256, 512)),
    "bonus_options.hidden": OneOf((64, 128, 256)),
    "policy_options.width": OneOf((32, 64, 128, 256)),
    "episodic_int": OneOf((False, True)),
    "normalize_obs": OneOf((False, True)),
    "normalize_reward": OneOf((False, True)),
    "normalize_adv": OneOf((False, True)),
    "bootstrap_truncated": OneOf((False, True)),
}
"""Fields that can be searched by their name alone."""

DEFAULT = ("lr", "bonus_lr", "entropy_coef", "int_coef", "gamma_ext")
"""Fields that are searched where none is named."""
WITHOUT = {"none": ("bonus_lr", "int_coef"), "zero": ("bonus_lr", "int_coef"), "count": ("bonus_lr",)}
"""Bonus to fields of DEFAULT that have no effect with it."""
FIXED = ("env.id", "frames")
"""Fields of the experiment that are the same in all trials."""


def space_of(config: Config, over: Sequence[str]) -> Space:
    """The fields to search: NAME, NAME=LOW..HIGH or NAME=A,B,C each; without any, DEFAULT."""
    if not over:
        over = [name for name in DEFAULT if name not in WITHOUT.get(config.bonus, ())]
    found: Space = {}
    for text in over:
        flag, equals, given = text.partition("=")
        name = flag.replace("-", "_")
        known = [field for field in config.named("experiment") if field not in FIXED]
        if name not in known:
            place = "; the game stands before --over" if text[:1].isupper() or "/" in text or ":" in text else ""
            raise UserError(f"--over {flag!r:.60}: no field that can be searched; {nearest(name, known)}{place}")
        if name in found:
            raise UserError(f"--over names {name} twice")
        start = start_value(config, name)
        found[name] = including(name, given_values(name, given, start) if equals else known_values(name, start), start)
    check_ends(config, found)
    return found


def start_value(config: Config, name: str) -> Any:
    """The value of a field in the config that the sweep starts from; a float where the field takes them."""
    start = config.flat()[name]
    start = config.lr if name == "bonus_lr" and start is None else start
    hint = declared(config)[f"--{name.replace('_', '-')}"].hint
    return float(start) if type(start) is int and float in (hint, *get_args(hint)) else start


def known_values(name: str, start: Any) -> Values:
    """The values of RANGES."""
    if name not in RANGES:
        raise UserError(f"--over {name}: which values? Write {name}=LOW..HIGH or {name}=A,B,C")
    values = RANGES[name]
    if not isinstance(values, Times):
        return values
    if not start:
        raise UserError(f"--over {name}: it starts with {start}; write {name}=LOW..HIGH")
    return Between(float(f"{start / values.factor:.3g}"), float(f"{start * values.factor:.3g}"))


def given_values(name: str, text: str, start: Any) -> Values:
    """LOW..HIGH or A,B,C as values."""
    if ".." in text:
        low, high = (value(part) for part in text.split("..", 1))
        if not (isinstance(low, int | float) and isinstance(high, int | float) and low < high):
            raise UserError(f"--over {name}={text!r:.60} is no range; write LOW..HIGH, for example 1e-4..1e-2")
        # a weight of 0..1 is any number between, not one of the two
        return Between(float(low), float(high)) if isinstance(start, float) else Between(low, high)
    values = tuple(part.strip() if isinstance(start, str) else value(part) for part in text.split(","))
    if len(values) < 2 or len({*values}) != len(values):
        raise UserError(f"--over {name}={text!r:.60}: two or more different values are wanted, as in A,B,C")
    return OneOf(values)


def value(text: str) -> Any:
    """The value that a text means: a number, True, False, None, or the text itself."""
    text = text.strip()
    if (number := whole_number(text)) is not None:
        return number
    try:
        return float(text)
    except ValueError:
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def including(name: str, values: Values, start: Any) -> Values:
    """`values` with the start among them."""
    if isinstance(values, Between) and (isinstance(start, bool) or not isinstance(start, int | float)):
        raise UserError(f"--over {name}={values}: it starts with {start}, which is in no range; write {name}=A,B,C")
    return values.including(start)


def check_ends(config: Config, space: Space) -> None:
    """Refuse values that the config does not take, before anything is trained."""
    for name, values in space.items():
        for each in (values.low, values.high) if isinstance(values, Between) else values.values:
            try:
                with_values(config, {name: each}).validate()
            except UserError as error:
                raise UserError(f"--over {name}={values}: {error}") from error


def with_values(config: Config, values: dict[str, Any]) -> Config:
    """`config` with some fields replaced, by dotted name."""
    changes: dict[str, Any] = {}
    for name, new in values.items():
        group, _, field = name.rpartition(".")
        if group:
            changes.setdefault(group, {})[field] = new
        else:
            changes[name] = new
    for component in ("bonus", "policy"):
        if values.get(component, getattr(config, component)) != getattr(config, component):
            config = replace(config, **{f"{component}_options": common_options(config, component)})
    if values.get("bonus", config.bonus) != config.bonus:
        config = with_other_bonus(config, values["bonus"])
    return with_changes(config, changes)


def with_other_bonus(config: Config, name: str) -> Config:
    """`config` with what a bonus changes where it is chosen by name, and without the changes of the one before."""
    if own := BONUS_CHANGES.get(config.bonus):
        start = starting_config(config.env.id, {"bonus": name, "policy": config.policy}, config.env.reads)
        config = replace(config, **{field: getattr(start, field) for field in own})
    return with_bonus(config, name)


def common_options(config: Config, component: str) -> Any:
    """The options that all bonuses, or all policies, have: another one does not know the rest."""
    group = f"{component}_options"
    given, base = getattr(config, group), OPTION_GROUPS[group]
    return base(**{field.name: getattr(given, field.name) for field in dataclasses.fields(base)})
