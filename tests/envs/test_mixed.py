"""Observations of images with vectors: encoding, workers, whole runs, and real environments."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace

import cv2
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rnd
import tasks
from helpers import quiet
from rnd import envs, run
from rnd.api import starting_config
from rnd.checkpoint import checkpoint
from rnd.config import BonusOptions, Config, EnvConfig
from rnd.envs.encoders import GLYPH_FRAMES
from rnd.envs.observations import make_encoder
from rnd.envs.spec import vector_of
from rnd.envs.tensor_env import TensorEnv, TensorStep
from rnd.foundation.errors import RunError, UserError

RANDOM = np.random.default_rng(0)
RGB, WIDE = (RANDOM.integers(0, 256, shape, np.uint8) for shape in ((60, 80, 3), (40, 120)))
HOOK = "tasks:hook_both"


def encoded(space: spaces.Space, obs: object) -> tuple[np.ndarray, np.ndarray]:
    """Images [K, 84, 84] and vector of an observation."""
    spec, write = make_encoder(space, "test")
    row = np.full(spec.shape, 9, spec.dtype)
    write(obs, row)
    return row[: spec.pixels].reshape(-1, 84, 84), vector_of(row, spec.pixels)


def test_images_are_channels_and_the_rest_is_a_vector_in_the_order_of_the_space():
    arm = spaces.Dict({"camera": spaces.Box(0, 255, WIDE.shape, np.uint8), "angles": spaces.Box(-1, 1, (2,))})
    space = spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 255, RGB.shape, np.uint8), spaces.Text(9), arm])
    spec, _ = make_encoder(space, "test")
    frames, numbers = encoded(space, (2, RGB, "hello", {"camera": WIDE, "angles": np.array([0.5, -0.0])}))
    grey = cv2.cvtColor(RGB, cv2.COLOR_RGB2GRAY)
    for frame, image in zip(frames, (grey, WIDE), strict=True):
        assert (frame == cv2.resize(image, (84, 84), interpolation=cv2.INTER_AREA)).all()
    assert numbers.tolist() == [0, 0, 1, 0.5, 0] and not np.signbit(numbers).any(), "one zero: one observation"
    assert spec.one_hot == (True,) * 3 + (False,) * 2 and spec.high[3:] == (3.0, 3.0)
    assert spec.notes == (
        "test: the networks do not see its text 2",
        "test: its images 1, 3.camera are channels of one, 84x84 each",
    )


def test_the_vector_of_a_mixed_observation_is_checked():
    config = Config(env=EnvConfig(id="test_mixed:broken", num_envs=2, timeout=5))
    with closing(envs.make(config)) as env:
        env.reset()
        with pytest.raises(RunError, match="environment 0 returned a NaN or infinite observation at step 0"):
            env.step(np.zeros(2, int))


class Broken(tasks.KeyDoor):
    def _observation(self):
        return super()._observation() | {"held": np.full(1, np.nan if self.agent == (1, 0) else 0, np.float32)}


def broken():
    return Broken("image+vector")


def small(**changes) -> Config:
    """Two rollouts of 8 steps of 4 environments."""
    config = starting_config(HOOK, {"policy": changes["policy"]} if "policy" in changes else {})
    env = replace(config.env, num_envs=4, **changes.pop("env", {}))
    config = replace(config, env=env, rollout_steps=8, minibatches=2, device="cpu", threads=1, frames=64)
    return replace(config, bonus_options=BonusOptions(8, 8, keep=1.0, random_steps=1), **changes)


def start(config: Config, path, name: str):
    return run.start(replace(config, out=str(path), name=name), quiet()).path


def state(path) -> dict[str, bytes]:
    newest, problems = checkpoint.newest(path / "checkpoints")
    assert newest is not None and not problems
    return checkpoint.serialise({}, newest.state)


@pytest.mark.parametrize(
    ("policy", "bonus", "workers"), [("cnn", "noveld", 0), ("cnn", "dynamics", 2), ("gru", "e3b", 0)]
)
def test_a_run_is_resumed_to_the_bit(policy, bonus, workers, tmp_path):
    config = small(policy=policy, bonus=bonus, env={"workers": workers})
    assert config.normalize_obs
    whole, half = start(replace(config, frames=96), tmp_path, "whole"), start(config, tmp_path, "half")
    run.resume(half, quiet(), 96)
    assert state(half) == state(whole)
    assert (half / "metrics.csv").read_bytes() == (whole / "metrics.csv").read_bytes()


def test_workers_change_nothing():
    actions, rows = RANDOM.integers(0, 4, (30, 4)), []
    for workers in (0, 2):
        with closing(envs.make(small(env={"workers": workers}))) as env:
            env.reset()
            rows.append(torch.stack([env.step(action).obs.clone() for action in actions]))
    assert torch.equal(*rows) and not torch.equal(rows[0][0], rows[0][-1])


def test_a_trained_agent_reads_both(tmp_path):
    path = start(small(), tmp_path, "run")
    agent, env = rnd.load(path, trusted=True), tasks.hook_both()
    assert agent.spec.observation.vector_size == 1 and agent.spec.observation.images == 1
    obs, _ = env.reset(seed=0)
    other = obs | {"held": 1 - obs["held"]}
    assert env.action_space.contains(agent.act(obs, first=True))
    assert agent.bonus(obs, before=obs) != agent.bonus(other, before=obs)
    assert -1 <= agent.evaluate(episodes=2).mean_return <= 1
    assert {file.suffix for file in agent.watch()} == {".mp4", ".png", ".svg", ".csv"}


def test_runs_of_older_versions_read_the_image_alone(tmp_path):
    """Their configs do not say what is read. A run that is made so continues, and its agent is loaded."""
    path = start(replace(small(env={"reads": "image"}), normalize_obs=False), tmp_path, "run")
    data = json.loads((path / "config.json").read_text())
    del data["env"]["reads"]
    (path / "config.json").write_text(json.dumps(data))
    assert Config.from_dict(data).env.reads == "image"
    run.resume(path, quiet(), 96)
    agent = rnd.load(path, trusted=True)
    assert agent.spec.observation.shape == (84, 84)
    obs, _ = tasks.hook_both().reset(seed=0)
    other = obs | {"held": 1 - obs["held"]}
    assert agent.bonus(obs, before=obs) == agent.bonus(other, before=other)


@pytest.mark.parametrize(
    ("env", "policy"), [({"id": "ALE/Pitfall-v5"}, "cnn"), ({"id": "CartPole-v1"}, "mlp"), ({}, "cnn")]
)
def test_configs_for_which_it_never_mattered_stay_as_they_are(env, policy):
    assert Config.from_dict({"env": env, "policy": policy}).env.reads == "all"


def test_policies_that_cannot_read_both_are_named():
    with closing(envs.make(small())) as env:
        assert env.spec.observation.kind == "mixed"
        spec = env.spec
    from rnd.config.components import POLICIES
    from rnd.models.policy import make_policy
    from rnd.models.policy.base import ActorCritic

    POLICIES.register("own", type("Own", (ActorCritic,), {}))
    with pytest.raises(
        UserError, match="shows images with vectors, which --policy own cannot read; nearest: --policy cnn"
    ):
        make_policy(replace(small(), policy="own"), spec)
    del POLICIES.entries["own"]


class Lamps(TensorEnv):
    """A pixel of the image, and a number, count the steps."""

    observation_space = spaces.Dict(
        {"view": spaces.Box(0, 255, (84, 84), np.uint8), "time": spaces.Box(-np.inf, np.inf, (1,))}
    )
    action_space = spaces.Discrete(2)

    def __init__(self, num_envs=4, device="cpu"):
        self.num_envs, self.time = num_envs, torch.zeros(num_envs, device=device)

    def _obs(self):
        view = torch.zeros(self.num_envs, 84, 84, dtype=torch.uint8)
        view[:, 0, 0] = self.time
        return {"view": view, "time": self.time[:, None] / 2}

    def reset(self, seed):
        self.time.zero_()
        return self._obs()

    def step(self, actions):
        self.time = (self.time + 1) % 5
        ends = self.time == 0
        return TensorStep(self._obs(), ends.float(), ends)

    def state_dict(self):
        return {"time": self.time}

    def load_state_dict(self, state):
        self.time = state["time"].clone()


def test_an_environment_on_the_device_may_have_both(tmp_path):
    config = replace(small(), env=EnvConfig(id="test_mixed:Lamps", num_envs=4, frame_skip=1), bootstrap_truncated=False)
    with closing(envs.make(config)) as env:
        env.reset()
        row = env.step(np.zeros(4, int)).obs.numpy()[2]
        assert row[0] == 1 and row[1:7056].max() == 0 and vector_of(row, 7056).tolist() == [0.5]
    whole, half = start(replace(config, frames=96), tmp_path, "whole"), start(config, tmp_path, "half")
    run.resume(half, quiet(), 96)
    assert state(half) == state(whole)


class Eyes(Lamps):
    """Two images, and nothing else."""

    observation_space = spaces.Dict({side: spaces.Box(0, 255, (84, 84), np.uint8) for side in ("left", "right")})

    def _obs(self):
        view = super()._obs()["view"]
        return {"left": view, "right": view + 1}


@pytest.mark.filterwarnings("error::UserWarning")
def test_an_environment_on_the_device_may_have_several_images_alone(tmp_path):
    env = EnvConfig(id="test_mixed:Eyes", num_envs=4, frame_skip=1)
    config = replace(small(), env=env, bootstrap_truncated=False, normalize_obs=False)
    assert start(config, tmp_path, "run").exists()
    agent = rnd.load(tmp_path / "run", trusted=True)
    assert (agent.spec.observation.images, agent.spec.observation.vector_size) == (2, 0)


@pytest.mark.parametrize("bounds", [(-9, 9), (0, 2**20)])
def test_only_small_grids_of_small_numbers_are_glyphs(bounds):
    space = spaces.Dict({"glyphs": spaces.Box(*bounds, (2, 3), np.int32)})
    assert make_encoder(space, "test")[0].kind == "vector"


def test_glyphs_have_colours_and_texts_are_left_out():
    glyphs = RANDOM.integers(0, 5977, (21, 79)).astype(np.int16)
    space = spaces.Dict(
        {
            "blstats": spaces.Box(-9, 9, (3,), np.int64),
            "chars": spaces.Box(0, 255, (21, 79), np.uint8),
            "glyphs": spaces.Box(0, 5976, (21, 79), np.int16),
            "message": spaces.Box(0, 255, (256,), np.uint8),
        }
    )
    spec, _ = make_encoder(space, "test")
    assert spec.images == GLYPH_FRAMES
    (note,) = spec.notes
    assert note == "test: the networks do not see its chars, message: texts, or what glyphs tell too"
    frames, numbers = encoded(space, {"glyphs": glyphs, "blstats": np.arange(3)})
    assert numbers.tolist() == [0, 1, 2] and not frames[:, :, 79:].any()
    cells = frames[:, ::4, :79].reshape(GLYPH_FRAMES, -1).T
    assert all((cells == frames[:, row::4, :79].reshape(GLYPH_FRAMES, -1).T).all() for row in range(4))
    assert len(np.unique(cells, axis=0)) == len(np.unique(glyphs)), "every glyph has a colour of its own"
    with pytest.raises(RunError, match="integers outside its space"):
        encoded(space, {"glyphs": glyphs + 5000, "blstats": np.arange(3)})


def test_nethack():
    pytest.importorskip("nle")
    config = starting_config("NetHackScore-v0", {})
    config = replace(config, env=replace(config.env, num_envs=4), rollout_steps=4, frames=32, device="cpu")
    with closing(envs.make(config)) as env:
        first, spec = env.reset().clone(), env.spec.observation
        later = env.step(np.full(4, 1)).obs
        assert spec.images == GLYPH_FRAMES and spec.vector_size == 27 + 3 * 55
        assert first[:, : spec.pixels].any() and vector_of(later.numpy(), spec.pixels)[:, 20].max() >= 1  # turns
        assert "message" in spec.notes[0] and "glyphs" not in spec.notes[0].split(":")[1]


def crafter_env():
    from examples.crafter_env import Crafter

    return Crafter(inventory=True, area=(32, 32))


def test_crafter():
    pytest.importorskip("crafter")
    with closing(envs.make(Config(env=EnvConfig(id="test_mixed:crafter_env", num_envs=1)))) as env:
        env.reset()
        spec, row = env.spec.observation, env.step(np.zeros(1, int)).obs.numpy()[0]
        assert env.repeats and spec.images == 1 and spec.vector_size == 16
        assert row[:7056].std() > 5 and vector_of(row, 7056)[0] == 9  # health


@pytest.mark.long
@pytest.mark.parametrize(("factory", "least", "most"), [("hook_both", 0.9, 1.0), ("hook_image", -1.0, 0.25)])
def test_a_task_that_needs_its_vector_is_solved_with_it_and_not_without(factory, least, most, tmp_path):
    """Without the vector no agent has a mean return above 0: tests/tasks.py. 0.25 is 2.5 standard errors above it."""
    config = replace(starting_config(f"tasks:{factory}", {}), frames=100_000, out=str(tmp_path))
    agent = rnd.load(run.start(config, quiet()).path, trusted=True)
    assert least <= agent.evaluate(episodes=100).mean_return <= most
