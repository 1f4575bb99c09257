"""Flags of a dataclass, and their values as text: read as the field's type says, or refused in one line."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from rnd.foundation.errors import UserError, nearest

WHOLE = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:e([+-]?\d{1,3}))?([kmg]?)", re.IGNORECASE)
UNITS = {"": 0, "k": 3, "m": 6, "g": 9}
"""Letters after a number, and the power of ten that they mean."""
MAX_DIGITS = 4000
"""Python reads numbers of 4,300 digits at most."""


class Flag(NamedTuple):
    """The field behind a flag."""

    hint: Any
    default: Any

    @property
    def is_switch(self) -> bool:
        return self.hint is bool

    @property
    def takes_several(self) -> bool:
        return get_origin(self.hint) is tuple


def declared(group: Any, prefix: str = "--") -> dict[str, Flag]:
    """The flags of a dataclass (or of an instance, whose values are the defaults) and of the dataclasses in it."""
    found: dict[str, Flag] = {}
    hints = get_type_hints(group if isinstance(group, type) else type(group))
    for field in dataclasses.fields(group):
        name, value = field.name.replace("_", "-"), getattr(group, field.name, hints[field.name])
        if dataclasses.is_dataclass(value):
            found |= declared(value, f"{prefix}{name}.")
            continue
        flag = Flag(hints[field.name], getattr(group, field.name, None))
        found[prefix + name] = flag
        if flag.is_switch:
            found[f"{prefix}no-{name}"] = flag
    return found


def checked(flags: dict[str, Flag], arguments: list[str]) -> list[str]:
    """The arguments with plain numbers as values (1e6, 600k and 1.5M are written out), each as `--flag=value`. Refuses
    values that are missing or not of their type. All flags are known here."""
    found: list[str] = []
    waiting = list(arguments)
    while waiting:
        argument, equals, value = waiting.pop(0).partition("=")
        name = argument.replace("_", "-")
        if name not in flags:
            if name not in ("-h", "--help"):
                raise UserError(f"{argument!r:.40} is neither a flag nor the value of one; {nearest(name, flags)}")
            found.append(name)
            continue
        flag = flags[name]
        if flag.is_switch:
            if equals:
                raise UserError(f"{name} is a switch: write it without a value, or its opposite, --no-...")
            found.append(name)
            continue
        values = [value] if equals else list(_following(waiting, flag.takes_several))
        texts = [read(name, flag, text) for text in values]
        if not values:
            raise UserError(f"{name} needs a value: {_wanted(flag.hint)}")
        found += [name, *texts] if flag.takes_several else [f"{name}={texts[0]}"]
    return found


def _following(waiting: list[str], several: bool) -> Iterator[str]:
    """Take the values of a flag off the arguments that follow it."""
    while waiting and not waiting[0].startswith("--"):
        yield waiting.pop(0)
        if not several:
            return


def read(name: str, flag: Flag, text: str) -> str:
    """The text of a value as Python reads it; an error where it is not of the flag's type."""
    for kind in _kinds(flag.hint):
        plain = _as(kind, text)
        if plain is not None:
            return plain
    hint = "leave it out" if flag.default is None else f"the default is {flag.default}"
    raise UserError(f"{name} must be {_wanted(flag.hint)}, not {text!r:.40}; {hint}")


def _kinds(hint: Any) -> tuple[Any, ...]:
    """The types that a value may have."""
    if get_origin(hint) in (Union, UnionType):
        return tuple(kind for inner in get_args(hint) for kind in _kinds(inner))
    return _kinds(get_args(hint)[0]) if get_origin(hint) is tuple else (hint,)


def _as(kind: Any, text: str) -> str | None:
    """The text as this type's, or None."""
    if kind is NoneType:
        return text if text == "None" else None
    if get_origin(kind) is Literal:
        return text if text in map(str, get_args(kind)) else None
    if kind is int:
        number = whole_number(text)
        return None if number is None else str(number)
    if kind is float:
        try:
            float(text)
        except ValueError:
            return None
    return text


def _wanted(hint: Any) -> str:
    """What a flag takes, in words."""
    kind = next(kind for kind in _kinds(hint) if kind is not NoneType)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(str, get_args(kind)))}"
    return {int: "a whole number (600000, 600k, 1.5M)", float: "a number"}.get(kind, "a text")


def whole_number(text: str) -> int | None:
    """600000, 600_000, 6e5, 600k or 0.6M (1,000, a million, a billion: K, M, G) as a number; None where it is no whole
    number. Exact: nothing is rounded."""
    match = WHOLE.fullmatch(text.strip().replace("_", ""))
    if match is None or not text.isascii():
        return None
    sign, whole, part, exponent, unit = match.groups(default="")
    digits, power = whole + part, int(exponent or 0) + UNITS[unit.lower()] - len(part)
    if not digits or len(digits) > MAX_DIGITS:
        return None
    value, rest = int(digits) * 10 ** max(power, 0), 0
    if power < 0:
        value, rest = divmod(value, 10**-power)
    return None if rest else -value if sign == "-" else value
