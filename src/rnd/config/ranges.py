"""Types of config fields: numbers with the range that they may have, and the checks of values against them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from rnd.foundation.errors import UserError


@dataclass(frozen=True)
class Range:
    """The values that a number may have, as an annotation of its type. `above`: `low` itself is not one of them."""

    low: float
    high: float
    above: bool = False

    def check(self, flag: str, value: float, default: Any) -> None:
        """Refuse a value outside, NaN included, in one line that names the flag."""
        if self.low <= value <= self.high and not (self.above and value == self.low):
            return
        hint = "leave it out" if default in (None, dataclasses.MISSING) else f"the default is {default}"
        if (self.low, self.high) == (0, 1):
            near = min(max(value, 0), 1) if value == value else 1
            must, hint = "between 0 and 1", f"nearest: {near}"
        elif value > self.high:
            must = f"at most {self.high}"
        else:
            must = f"greater than {self.low:g}" if self.above else f"{self.low:g} or more"
        text = str(value)
        shown = text if len(text) <= 30 else f"a number of {len(text)} digits"
        raise UserError(f"{flag} must be {must}, not {shown}; {hint}")


MAX_FLOAT, MAX_INT = 1e30, 2**31 - 1
"""A product of a few such numbers is still a float32, and an emulator counts in 32 bits."""
ANY_FLOAT, ANY_INT = Range(-MAX_FLOAT, MAX_FLOAT), Range(-(2**63), 2**63 - 1)
"""Limit of numbers whose type sets no other."""

PositiveFloat = Annotated[float, Range(0, MAX_FLOAT, above=True)]
NonNegativeFloat = Annotated[float, Range(0, MAX_FLOAT)]
Fraction = Annotated[float, Range(0, 1)]
PositiveInt = Annotated[int, Range(0, MAX_INT, above=True)]
NonNegativeInt = Annotated[int, Range(0, MAX_INT)]
Frames = Annotated[int, Range(0, 10**15, above=True)]
Threads = Annotated[int, Range(0, 1024, above=True)]
Width = Annotated[int, Range(0, 2**16, above=True)]
Seed = Annotated[int, Range(0, 2**64 - 1)]


def check_ranges(group: Any, prefix: str = "--", start: Any = None) -> None:
    """Refuse numbers of a dataclass, and of those in it, that are outside the ranges of their types. `start` holds the
    defaults that the message names; without it they are those of the class."""
    hints = get_type_hints(type(group), include_extras=True)
    for item in dataclasses.fields(group):
        flag, value = prefix + item.name.replace("_", "-"), getattr(group, item.name)
        if dataclasses.is_dataclass(value):
            check_ranges(value, flag + ".", getattr(start, item.name, None))
            continue
        for number in value if isinstance(value, tuple) else (value,):
            if isinstance(number, int | float) and not isinstance(number, bool):
                allowed = _range_of(hints[item.name]) or (ANY_INT if isinstance(number, int) else ANY_FLOAT)
                allowed.check(flag, number, getattr(start, item.name, item.default))


def check_types(cls: type[Any], values: dict[str, Any], prefix: str = "") -> None:
    """Refuse values whose type is not that of the field: files can hold anything."""
    hints = get_type_hints(cls)
    for name, value in values.items():
        if name in hints and not _fits(value, hints[name]):
            kind = getattr(hints[name], "__name__", hints[name])
            raise UserError(f"config field {prefix}{name} is {value!r:.60}, which is no {kind}")


def _fits(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return any(type(value) is type(choice) and value == choice for choice in get_args(kind))
    if get_origin(kind) in (Union, UnionType):
        return any(_fits(value, inner) for inner in get_args(kind))
    if kind in (int, float):
        return type(value) is int or (kind is float and type(value) is float)
    return not isinstance(kind, type) or isinstance(value, kind)


def _range_of(hint: Any) -> Range | None:
    """The range in a type, or in a type within it, as in `Threads | None`."""
    found = [inner for inner in getattr(hint, "__metadata__", ()) if isinstance(inner, Range)]
    found += [inner for inner in map(_range_of, get_args(hint)) if inner]
    return found[0] if found else None
