"""Saving, restoring, threads, groups and bad input of the native batch."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pickle
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ale_py")
native = pytest.importorskip("rnd.envs.native")
if not native.available():
    pytest.skip(native.why_unavailable(), allow_module_level=True)

from rnd.envs.native.roms import read_rom  # noqa: E402

GAMES = ("montezuma_revenge", "gravitar", "pitfall", "private_eye", "solaris", "venture", "freeway")


class Rig:
    """A batch with its arrays."""

    def __init__(self, game: str, n: int, seed: int = 0, threads: int = 1, **options: Any) -> None:
        self.batch = native.AtariBatch(
            read_rom(game), game, np.arange(seed, seed + n, dtype=np.uint64), threads=threads, **options
        )
        self.frames = np.zeros((n, 84, 84), np.uint8)
        self.rewards = np.zeros(n, np.float32)
        self.terminated, self.truncated = np.zeros(n, np.uint8), np.zeros(n, np.uint8)
        self.ram, self.lives = np.zeros((n, 128), np.uint8), np.zeros(n, np.int32)
        self.final_ram = np.zeros((n, 128), np.uint8)
        self.batch.reset(self.frames, self.ram, self.lives)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.frames, self.rewards, self.terminated, self.truncated, self.ram, self.lives, self.final_ram

    def step(self, actions: np.ndarray, **group: int) -> bytes:
        self.batch.step(actions, *self.arrays, **group)
        return b"".join(a.tobytes() for a in self.arrays)


@pytest.mark.parametrize("threads", [1, 2])
def test_playing_ahead_is_stepping(threads):
    """Episodes end within it (400 frames at most); afterwards both continue alike."""
    one, other = (Rig("venture", 3, threads=threads, max_episode_frames=400) for _ in range(2))
    actions = np.random.default_rng(0).integers(one.batch.num_actions, size=(150, 3))
    frames, rewards = np.zeros((150, 3, 84, 84), np.uint8), np.zeros((150, 3), np.float32)
    other.batch.play(actions, frames, rewards, *other.arrays[2:])
    ended = 0
    for t, action in enumerate(actions):
        one.step(action)
        assert np.array_equal(one.frames, frames[t])
        assert np.array_equal(one.rewards, rewards[t])
        ended += int((one.terminated | one.truncated).sum())
    assert ended >= 3
    for mine, its in zip(one.arrays[2:], other.arrays[2:], strict=True):
        assert np.array_equal(mine, its)
    assert [one.batch.save(i) for i in range(3)] == [other.batch.save(i) for i in range(3)]


def test_playing_ahead_refuses_arrays_that_do_not_fit():
    rig = Rig("freeway", 2)
    actions, frames, rewards = (
        np.zeros((5, 2), np.int64),
        np.zeros((5, 2, 84, 84), np.uint8),
        np.zeros((5, 2), np.float32),
    )
    for wrong in (
        (actions[:4], frames, rewards),
        (actions, frames[:, :1].copy(), rewards),
        (actions, frames, rewards[:4]),
    ):
        with pytest.raises(ValueError, match="the same steps"):
            rig.batch.play(*wrong, *rig.arrays[2:])
    actions[4, 1] = 99
    with pytest.raises(ValueError, match="action 99"):
        rig.batch.play(actions, frames, rewards, *rig.arrays[2:])


def replay(game: str, saved: bytes, seed: int, steps: int = 500) -> list[bytes]:
    """Load `saved` into a new batch and play `steps` steps."""
    rig = Rig(game, 1, seed=999)
    rig.batch.load(0, saved)
    actions = np.random.default_rng(seed).integers(rig.batch.num_actions, size=(steps, 1))
    return [rig.step(a) for a in actions]


@pytest.mark.parametrize(
    ("trials", "game"),
    [
        *((10, game) for game in ("montezuma_revenge", "private_eye", "solaris")),
        *(pytest.param(40, game, marks=pytest.mark.long) for game in GAMES),
    ],
)
def test_restored_environments_continue_exactly(game: str, trials: int) -> None:
    rng = np.random.default_rng(1)
    rig = Rig(game, 1, max_episode_frames=3_000)
    equal = 0
    for trial in range(trials):
        for a in rng.integers(rig.batch.num_actions, size=(int(rng.integers(1, 120)), 1)):
            rig.step(a)
        saved = rig.batch.save(0)
        other = Rig(game, 1, seed=999, max_episode_frames=3_000)
        other.batch.load(0, saved)
        other.final_ram[:] = rig.final_ram  # of the last end, which may lie before the save
        assert np.array_equal(other.batch.screen(0), rig.batch.screen(0))
        actions = np.random.default_rng(trial).integers(rig.batch.num_actions, size=(500, 1))
        equal += all(rig.step(a) == other.step(a) for a in actions)
    assert equal == trials


def test_a_new_process_restores_exactly(tmp_path: Path) -> None:
    rig = Rig("montezuma_revenge", 1)
    for a in np.random.default_rng(0).integers(18, size=(300, 1)):
        rig.step(a)
    saved = rig.batch.save(0)
    (tmp_path / "saved").write_bytes(saved)
    program = (
        "import pickle, sys\nfrom pathlib import Path\nfrom test_batch import replay\n"
        "print(pickle.dumps(replay('montezuma_revenge', Path(sys.argv[1]).read_bytes(), 3)).hex())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "saved")],
        capture_output=True,
        text=True,
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *map(os.path.abspath, sys.path)]),
        },
    )
    assert pickle.loads(bytes.fromhex(done.stdout)) == replay("montezuma_revenge", saved, 3)


OLD_STATES = json.loads((Path(__file__).parent / "saved_version_1.json").read_text())
"""By commit 7ed0f33, after 333 steps of one game per bank-switching scheme, with the hash of the next 500."""


@pytest.mark.parametrize("game", OLD_STATES)
def test_states_of_version_1_continue_exactly(game: str) -> None:
    rig, digest, rng = Rig(game, 1, seed=999), hashlib.sha256(), np.random.default_rng(3)
    rng.integers(rig.batch.num_actions, size=(333, 1))  # what was played before
    old = zlib.decompress(base64.b85decode(OLD_STATES[game]["state"]))
    rig.batch.load(0, old)
    new = rig.batch.save(0)
    assert old[8] == 1 and new[8] == 2 and len(new) < len(old)
    for actions in rng.integers(rig.batch.num_actions, size=(500, 1)):
        rig.step(actions)
        for array in rig.arrays[:6]:
            digest.update(array.tobytes())
    assert digest.hexdigest() == OLD_STATES[game]["sha256"]
    with pytest.raises(ValueError, match="wrong length"):
        rig.batch.load(0, old[:-1])
    with pytest.raises(ValueError, match="version 3"):
        rig.batch.load(0, new[:8] + b"\x03" + new[9:])


def test_wrong_states_are_refused_in_one_line() -> None:
    rig, other = Rig("montezuma_revenge", 1), Rig("pitfall", 1)
    saved = rig.batch.save(0)
    damaged = saved[:5_000] + bytes([saved[5_000] ^ 1]) + saved[5_001:]
    for batch, data in ((rig, b""), (rig, b"x" * len(saved)), (rig, saved[:-1]), (rig, damaged), (other, saved)):
        with pytest.raises(ValueError) as error:
            batch.batch.load(0, data)
        assert "\n" not in str(error.value)


HEADER, SCREENS = 56, 2 * 210 * 160


def with_checksum(saved: bytes, position: int, value: int) -> bytes:
    """A saved state with one byte changed and the checksum made to fit, as whoever writes a file can."""
    body = bytearray(saved[HEADER:])
    body[position] = value
    checksum = 0xCBF29CE484222325
    for byte in body:
        checksum = (checksum ^ byte) * 0x100000001B3 % 2**64
    return saved[: HEADER - 8] + checksum.to_bytes(8, "little") + body


def test_fields_out_of_range_are_refused() -> None:
    """Bytes besides the screens as 255, one at a time. `newest`, the index of a screen, stands before the screens."""
    rig = Rig("montezuma_revenge", 1)
    saved = rig.batch.save(0)
    fields = len(saved) - HEADER - SCREENS
    refused = []
    for position in [*range(0, fields, 10), *range(fields - 60, fields)]:
        try:
            rig.batch.load(0, with_checksum(saved, position, 255))
        except ValueError as error:
            refused.append(str(error))
        for _ in range(3):
            rig.step(np.zeros(1, np.int64))
        rig.batch.load(0, saved)
    assert "a damaged saved environment: its newest is out of range" in refused and len(set(refused)) > 3


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_do_not_change_the_bytes(threads: int) -> None:
    one, many = Rig("pitfall", 7), Rig("pitfall", 7, threads=threads)
    for a in np.random.default_rng(0).integers(18, size=(150, 7)):
        assert one.step(a) == many.step(a)


@pytest.mark.parametrize("spin", [False, True])
def test_groups_step_separately_and_at_the_same_time(spin: bool) -> None:
    whole, halves = Rig("venture", 6), Rig("venture", 6, threads=2)
    for a in np.random.default_rng(0).integers(18, size=(100, 6)).astype(np.int32):
        expected = whole.step(a)
        halves.batch.step_async(a, *halves.arrays, first=0, count=2)
        halves.batch.step_async(a, *halves.arrays, first=2, count=4)
        halves.batch.wait(2, spin)
        halves.batch.wait(0, spin)
        assert b"".join(x.tobytes() for x in halves.arrays) == expected
    halves.batch.step_async(a, *halves.arrays, first=0, count=3)
    with pytest.raises(ValueError, match="still stepping"):
        halves.batch.step_async(a, *halves.arrays, first=2, count=2)
    halves.batch.wait(spin=spin)


@pytest.mark.parametrize("spin", [False, True])
def test_a_thread_that_spins_steps_what_no_other_has_begun(spin: bool) -> None:
    """The pool's one thread steps the first group to its end, then the second."""
    rig, actions, first = Rig("venture", 402), np.zeros(402, np.int32), 400
    rewards = rig.arrays[1]
    rewards[:] = -1
    rig.batch.step_async(actions, *rig.arrays, first=0, count=first)
    rig.batch.step_async(actions, *rig.arrays, first=first, count=2)
    rig.batch.wait(first, spin)
    assert (rewards[first:] == 0).all()
    assert (rewards[first - 1] == -1) == spin, "the first group is under way when the second is done"
    rig.batch.wait()
    assert (rewards == 0).all()


def test_a_long_step_outlasts_the_spinning() -> None:
    """A thread per environment: all have begun, and take longer than the 2 ms for which the waiting thread spins."""
    whole, spun = Rig("venture", 96), Rig("venture", 96, threads=96)
    actions = np.zeros(96, np.int32)
    expected = whole.step(actions)
    spun.batch.step_async(actions, *spun.arrays)
    spun.batch.wait(0, spin=True)
    assert b"".join(x.tobytes() for x in spun.arrays) == expected


def test_a_group_does_not_write_other_rows() -> None:
    rig = Rig("freeway", 4)
    rig.frames[3], rig.ram[3], rig.final_ram[:] = 77, 88, 99
    rig.step(np.zeros(4, np.int64), first=1, count=2)
    assert (rig.frames[3] == 77).all() and (rig.ram[3] == 88).all()
    assert (rig.final_ram == 99).all()  # no episode has ended


@pytest.mark.parametrize("simd", ["avx2", "portable"])
def test_every_instruction_set_gives_the_same_observations(simd: str) -> None:
    best = Rig("solaris", 2)
    try:
        other = Rig("solaris", 2, simd=simd)
    except ValueError as error:
        pytest.skip(str(error))
    assert other.batch.simd == simd
    for a in np.random.default_rng(0).integers(18, size=(200, 2)):
        assert best.step(a) == other.step(a)


def test_without_autoreset_an_episode_ends_until_it_is_reset() -> None:
    rig = Rig("freeway", 1, max_episode_frames=6, autoreset=False)
    rig.step(np.zeros(1, np.int64))
    rig.step(np.zeros(1, np.int64))
    assert rig.truncated[0] == 1 and np.array_equal(rig.final_ram, rig.ram)
    rig.batch.reset(rig.frames, rig.ram, rig.lives)
    rig.step(np.zeros(1, np.int64))
    assert rig.truncated[0] == 0


def test_bad_input_is_a_value_error() -> None:
    rom, seeds = read_rom("pitfall"), np.zeros(1, np.uint64)
    for arguments in (
        {"rom": b""},
        {"rom": rom[:100]},
        {"rom": rom * 2},
        {"game": "no_such_game"},
        {"threads": 0},
        {"frame_skip": 0},
        {"sticky": 1.5},
        {"simd": "mmx"},
        {"seeds": np.zeros(0, np.uint64)},
    ):
        with pytest.raises(ValueError):
            native.AtariBatch(**{"rom": rom, "game": "pitfall", "seeds": seeds, "threads": 1, **arguments})
    rig = Rig("pitfall", 2)
    with pytest.raises(ValueError):
        rig.step(np.array([0, 18]))
    with pytest.raises(ValueError):
        rig.step(np.zeros(2, np.int64), first=1, count=2)
    with pytest.raises(ValueError):
        rig.step(np.zeros(3, np.int64))
    with pytest.raises(IndexError):
        rig.batch.screen(2)
