"""Values of flags: numbers as people write them, exactly."""

from dataclasses import dataclass

import pytest

from rnd.cli import parse
from rnd.config.flags import whole_number
from rnd.config.ranges import Frames, PositiveInt


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e6", 1_000_000),
        ("600k", 600_000),
        ("600K", 600_000),
        ("1.5M", 1_500_000),
        (".5m", 500_000),
        ("2G", 2_000_000_000),
        ("1.966080E9", 1_966_080_000),
        ("600_000", 600_000),
        ("+7", 7),
        ("-5", -5),
        ("0.30000000000000000001e20", 30_000_000_000_000_000_001),  # a float would round it
        ("1.00", 1),
        ("15e-1", None),
        ("1.2345k", None),
        ("", None),
        ("k", None),
        ("1e", None),
        ("1kk", None),
        ("1e99999", None),
        ("9" * 5000, None),
        ("nan", None),
        ("inf", None),
        ("0x10", None),
        ("٣", None),
        ("1,000", None),
    ],
)
def test_whole_numbers(text, value):
    assert whole_number(text) == value


@dataclass(frozen=True)
class Options:
    frames: Frames | None = None
    num_envs: tuple[PositiveInt, ...] = (16,)
    name: str = "x"
    fast: bool = True


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--frames", "1.5M"], Options(1_500_000)),
        (["--frames=600k", "--name", "-1", "--no-fast"], Options(600_000, name="-1", fast=False)),
        (["--num_envs", "1k", "2", "--frames", "None"], Options(None, (1000, 2))),
    ],
)
def test_they_reach_every_flag(arguments, expected):
    assert parse(Options, arguments, prog="test", description="") == expected
