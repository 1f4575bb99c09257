"""Writes the small run folders of tests/report/stored: python tests/report/store.py. Invented numbers, real form."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from rnd.config import Config, EnvConfig
from rnd.config.presets import preset
from rnd.metrics.metrics import CsvWriter

STORED = Path(__file__).parent / "stored"
ABOUT = {
    "rnd": "0.1.0",
    "python": "3.11.2",
    "platform": "Linux-x86_64",
    "packages": {"torch": "2.13.0", "numpy": "2.4.0"},
    "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "clean": True},
    "command": ["rnd", "train", "montezuma"],
    "started": "2026-11-15T08:00:00+00:00",
}


def rows_of(
    config: Config, rows: int, random: np.random.Generator, height: float
) -> list[dict[str, float | int | None]]:
    """An invented curve: no episode has ended in the first two rollouts."""
    found = []
    for i in range(1, rows + 1):
        share = i / config.iterations
        found.append(
            {
                "iteration": i,
                "frames": i * config.frames_per_rollout,
                "updates": i * 16,
                "episodes": 3 * i,
                "return_mean": None if i <= 2 else height * share**2 + 50 * float(random.random()),
                "return_best": None if i <= 2 else 2 * height * share,
                "length_mean": None if i <= 2 else 400 + 200 * share,
                "success": None,
                "rooms": 1 + int(23 * share),
                "places": 1 + int(23 * share),
                "bonus_raw": 2.0 * 0.6**i + 0.001 * float(random.random()),
                "bonus_max": 4.0 * 0.8**i,
                "bonus_scaled": 0.02,
                "bonus_scale": 10.0,
                "return_int": 3.0 * 0.97**i,
                "policy_loss": float(random.normal(0, 0.01)),
                "value_ext_loss": 0.1 * 0.9**i,
                "value_int_loss": 1.0 * 0.9**i,
                "bonus_loss": 2.0 * 0.7**i,
                "approx_kl": 0.003,
                "clip_fraction": 0.05,
                "entropy": 2.8 - share,
                "loss": 0.5,
            }
        )
    return found


def write_run(path: Path, config: Config, rows: int, seed: int, height: float, rooms: dict[int, list[int]]) -> None:
    random = np.random.default_rng(seed)
    path.mkdir(parents=True, exist_ok=True)
    for name in ("metrics.csv", "timing.csv"):
        (path / name).unlink(missing_ok=True)
    (path / "config.json").write_text(json.dumps(config.to_dict(), indent=2) + "\n")
    (path / "run.json").write_text(json.dumps(ABOUT, indent=2) + "\n")
    writer = CsvWriter(path)
    for row in rows_of(config, rows, random, height):
        writer.write(row, {"seconds": 10.0, "frames_per_second": 6000 + 500 * float(random.random())})
    writer.close()
    (path / "rooms.json").write_text(json.dumps({str(k): v for k, v in rooms.items()}) + "\n")


def montezuma(iterations: int, **changes: object) -> Config:
    config = replace(preset("montezuma"), **changes)  # type: ignore[arg-type]
    return replace(config, frames=iterations * config.frames_per_rollout)


def rooms_found(seed: int, number: int, every: int) -> dict[int, list[int]]:
    random = np.random.default_rng(seed)
    order = [1, 0, 2, 6, 7, 13, 5, 12, 11, 4, 14, 22, 21, 10, 3, 20, 19, 9, 8, 18, 17, 16, 15, 23]
    return {
        room: [(k + 1) * every, int(20_000 * 0.7**k * (1 + random.random())) + 1]
        for k, room in enumerate(order[:number])
    }


def main() -> None:
    every = montezuma(12).frames_per_rollout
    for seed, rows, number in ((1, 12, 17), (2, 12, 15), (3, 9, 11)):  # the third seed was interrupted
        config = montezuma(12, seed=seed)
        write_run(STORED / f"rnd-s{seed}", config, rows, seed, 6000, rooms_found(seed, number, every // 2))
    plain = montezuma(12, bonus="none")
    write_run(STORED / "ppo-s1", plain, 12, 11, 2000, rooms_found(11, 4, every // 2))
    pitfall = replace(montezuma(12), env=EnvConfig(id="ALE/Pitfall-v5"))
    write_run(STORED / "pitfall-s1", pitfall, 12, 12, 10, {k * 7 % 255: [every * k, 900 // k] for k in range(1, 12)})
    grid = replace(preset("MiniGrid-MultiRoom-N4-S5-v1"), frames=12 * 4096)
    cells = {y * 256 + x: [4096 * (1 + (x + y) % 12), 5 * x + y] for x in range(3, 12) for y in range(4, 9)}
    write_run(STORED / "minigrid-s1", grid, 12, 13, 1, cells)


if __name__ == "__main__":
    main()
