"""The native backend: how it is chosen, its calls (with a stand-in), and ale-py's bytes where it is built."""

from __future__ import annotations

import json
import types
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console

from rnd import envs, run
from rnd.config import BonusOptions, Config, EnvConfig
from rnd.config.presets import ATARI_GAMES
from rnd.envs.ale_env import AleEnv
from rnd.envs.native_envs import NativeEnvs, unsupported_reason
from rnd.envs.spec import buffer_layout
from rnd.foundation.errors import UserError
from rnd.metrics.metrics import read_csv

MONTEZUMA = ATARI_GAMES["montezuma"]


def config(env_id: str = MONTEZUMA, num_envs: int = 3, **options: object) -> Config:
    return Config(env=EnvConfig(id=env_id, num_envs=num_envs, workers=0, translate=False, **options), seed=11)


class StandIn:
    """`AtariBatch` made of ale-py environments: the interface without the native core."""

    def __init__(self, rom, game, seeds, *, threads, frame_skip, sticky, max_episode_frames):
        assert isinstance(rom, bytes) and len(rom) == 8192 and seeds.dtype == np.uint64
        options = {"frame_skip": frame_skip, "sticky": sticky, "max_episode_frames": max_episode_frames}
        self.envs = [AleEnv(game, game, int(seed), **options) for seed in seeds]
        layout = buffer_layout(self.envs[0].spec, len(seeds))
        self.out = {name: np.zeros(shape, dtype) for name, (shape, dtype) in layout.items()}
        self.num_actions = len(self.envs[0].actions)
        self.under_way: dict[int, tuple] = {}

    def reset(self, frames, ram, lives):
        for i, env in enumerate(self.envs):
            env.reset(self.out, i)
            frames[i], ram[i], lives[i] = self.out["obs"][i], env.ale.getRAM(), self.out["lives"][i]

    def step_async(self, *arrays):
        first = arrays[-2]
        assert first not in self.under_way
        self.under_way[first] = arrays

    def wait(self, first, spin):
        actions, frames, rewards, terminated, truncated, ram, lives, final_ram, _, count = self.under_way.pop(first)
        for i in range(first, first + count):
            self.out["action"][i] = actions[i]
            self.envs[i].step(self.out, i)
            frames[i], ram[i], lives[i] = self.out["obs"][i], self.envs[i].ale.getRAM(), self.out["lives"][i]
            rewards[i], terminated[i] = self.out["reward"][i], self.out["terminated"][i]
            truncated[i] = self.out["truncated"][i]
            if terminated[i] or truncated[i]:
                final_ram[i, 57], final_ram[i, 3] = divmod(self.out["final_room"][i], 256)

    def save(self, i):
        return self.envs[i].save()

    def load(self, i, data):
        self.envs[i].load(data, self.out, i)


@pytest.fixture
def stand_in(monkeypatch):
    module = types.ModuleType("rnd.envs.native")
    module.AtariBatch = StandIn
    module.available = lambda: True
    module.why_unavailable = lambda: "it is switched off"
    module.supported_games = lambda: ("montezuma_revenge",)
    monkeypatch.setattr("rnd.envs.native_envs.native", module)
    return module


def assert_same_steps(one, other, steps: int, seed: int) -> None:
    actions = np.random.default_rng(seed).integers(0, one.spec.action.sizes[0], (steps, one.num_envs))
    for t in range(steps):
        a, b = one.step(actions[t]), other.step(actions[t])
        assert a.info.episodes == b.info.episodes and a.info.entered == b.info.entered, t
        assert (one.buffers["final_room"] == other.buffers["final_room"]).all(), t
        for x, y in zip(
            (a.obs, a.reward, a.done, a.info.truncated, a.info.room, a.info.lives),
            (b.obs, b.reward, b.done, b.info.truncated, b.info.room, b.info.lives),
            strict=True,
        ):
            assert x.dtype == y.dtype and (x == y).all(), t


def test_the_native_backend_gives_the_steps_of_ale(stand_in):
    with closing(envs.make(config())) as native, closing(envs.make(config(backend="ale"))) as ale:
        assert isinstance(native, NativeEnvs) and len(native.groups) == 2
        assert native.spec.backend == "native core, 1 thread"
        assert native.spec.action == ale.spec.action and native.spec.has_rooms
        assert (native.reset() == ale.reset()).all()
        assert_same_steps(native, ale, 150, seed=0)
        state = native.state_dict()
        with closing(envs.make(config())) as restored:
            restored.load_state_dict(state)
            assert_same_steps(native, restored, 50, seed=1)
        with pytest.raises(UserError, match=r"were not saved by ale-py, in this process"):
            ale.load_state_dict(state)
        with pytest.raises(UserError, match=r"were not saved by native core, 1 thread"):
            native.load_state_dict(ale.state_dict())


def test_a_run_continues_on_the_backend_that_saved_it(stand_in, tmp_path):
    """`auto` would choose another one after the native core was built, or is gone."""
    small = replace(config(num_envs=4), rollout_steps=4, frames=64, device="cpu", out=str(tmp_path), writers="none")
    small = replace(small, bonus_options=BonusOptions(features=8, random_steps=1))
    quiet = Console(quiet=True)
    stand_in.available = lambda: False
    run.start(replace(small, name="ale"), quiet)
    stand_in.available = lambda: True
    run.start(replace(small, name="native"), quiet)
    run.resume(tmp_path / "ale", quiet, 128)
    assert list(read_csv(tmp_path / "ale" / "metrics.csv")["iteration"]) == [1, 2]
    assert json.loads((tmp_path / "ale" / "config.json").read_text())["env"]["backend"] == "auto"
    stand_in.available = lambda: False
    with pytest.raises(UserError, match=r"saved by the native core, which cannot run here: it is switched off; ale-py"):
        run.resume(tmp_path / "native", quiet, 128)
    stand_in.available = lambda: True
    run.resume(tmp_path / "native", quiet, 128)


def test_the_spec_names_the_chosen_backend_and_why(stand_in):
    with closing(envs.make(config(ATARI_GAMES["venture"], 1))) as env:
        assert env.spec.backend == "ale-py, in this process; native core: this game is not proven exact"
    stand_in.available = lambda: False
    with closing(envs.make(config(num_envs=1))) as env:
        assert env.spec.backend == "ale-py, in this process; native core: it is switched off"
    with pytest.raises(UserError, match=r"it is switched off; nearest: --env.backend ale"):
        envs.make(config(backend="native"))


SOME = ("montezuma", "private-eye", "solaris")
"""Games of `make test`: one per bank-switching scheme. The others are in `make test-long`."""


@pytest.mark.parametrize(
    "game", [*SOME, *(pytest.param(game, marks=pytest.mark.long) for game in ATARI_GAMES if game not in SOME)]
)
def test_the_native_core_gives_the_bytes_of_ale(game):
    chosen = config(ATARI_GAMES[game], 2, max_episode_frames=4_000)
    problem = unsupported_reason(chosen)
    if problem:
        pytest.skip(f"native core: {problem}")
    with (
        closing(NativeEnvs(chosen, 2)) as native,
        closing(envs.make(config(ATARI_GAMES[game], 2, backend="ale", max_episode_frames=4_000))) as ale,
    ):
        assert (native.reset() == ale.reset()).all()
        assert_same_steps(native, ale, 1_500, seed=5)
        state = native.state_dict()
        with closing(NativeEnvs(chosen, 1)) as restored:
            restored.load_state_dict(state)
            assert_same_steps(restored, native, 300, seed=6)


def test_the_native_core_plays_ahead_like_ale():
    """With actions that were chosen before: the random agent's."""
    chosen = config(num_envs=2, max_episode_frames=300)
    problem = unsupported_reason(chosen)
    if problem:
        pytest.skip(f"native core: {problem}")
    actions = np.random.default_rng(7).integers(0, 18, (200, 2))
    played = []
    for env in (NativeEnvs(chosen, 2), envs.make(config(num_envs=2, backend="ale", max_episode_frames=300))):
        with closing(env):
            obs, rewards = torch.zeros(200, *env.reset().shape, dtype=torch.uint8), torch.zeros(200, 2)
            env.play(actions[:90], obs[:90], rewards[:90])
            env.play(actions[90:], obs[90:], rewards[90:])
            played.append((obs, rewards, env.reset().clone()))
    for native, ale in zip(*played, strict=True):
        assert torch.equal(native, ale)
    assert len({frame.numpy().tobytes() for frame in played[0][0][:, 0]}) > 50


@pytest.mark.parametrize("game", ["freeway", "private-eye", "solaris"])
def test_the_native_core_resets_like_ale(game):
    """Where a reset depends on the resets before it: 100 episodes of two agent steps."""
    options = {"num_envs": 1, "max_episode_frames": 8}
    problem = unsupported_reason(config(ATARI_GAMES[game], **options))
    if problem:
        pytest.skip(f"native core: {problem}")
    with (
        closing(envs.make(config(ATARI_GAMES[game], backend="native", **options))) as native,
        closing(envs.make(config(ATARI_GAMES[game], backend="ale", **options))) as ale,
    ):
        native.reset()
        ale.reset()
        assert_same_steps(native, ale, 200, seed=0)
