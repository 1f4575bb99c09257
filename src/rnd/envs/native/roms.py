"""The games' programs, which ale-py brings."""

from __future__ import annotations

from pathlib import Path


def rom_path(game: str) -> Path:
    from ale_py import roms

    path = roms.get_rom_path(game)
    if path is None:
        raise ValueError(f"ale-py has no ROM named {game}")
    return Path(path)


def read_rom(game: str) -> bytes:
    return rom_path(game).read_bytes()
