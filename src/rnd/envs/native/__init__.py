"""Atari 2600 environments in C++: the native backend of the Atari environments.

The extension is optional: `AtariBatch` may be used where `available()`. `supported_games()` are the games whose
emulation is proven equal to ale-py's, byte for byte; for every other game use ale-py itself.
"""

from __future__ import annotations

_reason = ""
try:
    from rnd.envs.native._core import AtariBatch, known_games, shrink, simd
except ModuleNotFoundError:
    _reason = "not built"
except ImportError as error:
    _reason = f"cannot be loaded: {error}"

__all__ = ["AtariBatch", "available", "shrink", "supported_games", "version", "why_unavailable"]


def available() -> bool:
    """Whether the extension can be used."""
    return not _reason


def why_unavailable() -> str:
    """The reason in one line; empty where the extension is available."""
    return _reason


def supported_games() -> tuple[str, ...]:
    """The ROM names, as ale-py spells them, whose emulation is proven exact; none without the extension."""
    return known_games() if available() else ()


def version() -> str:
    """In one line: whether the extension is there, its instruction set on this processor, its games."""
    return _reason or f"yes, {simd}, {len(supported_games())} games"
