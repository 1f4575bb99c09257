"""The video and the strip: the bonus is that of normalized observations, and the same seed gives the same episode."""

import csv
import io
import json
import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import cv2
import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from rich.console import Console

from helpers import quiet
from rnd import run
from rnd.checkpoint.export import export_agent, load_agent
from rnd.config import BonusOptions
from rnd.config.components import resolve
from rnd.config.presets import preset, small
from rnd.data.transitions import Transitions
from rnd.foundation.errors import UserError
from rnd.models.policy.mlp import WidthOptions
from rnd.report.events import Events
from rnd.report.options import WatchOptions
from rnd.report.play import Camera, PlayedEpisode, PlayedStep, _image_of, as_image, environment, episode, play, screen
from rnd.report.strip import draw_strip, events_near
from rnd.report.video import ACCENT, CURVE, GAME, HEIGHT, WIDTH, Overlay
from rnd.report.watch import watch


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A MiniGrid agent after a few rollouts."""
    config = replace(small("MiniGrid-MultiRoom-N2-S4-v0", "choices"), bonus="rnd")
    config = replace(
        config,
        env=replace(config.env, num_envs=4),
        bonus_options=BonusOptions(features=8, hidden=16, keep=1.0, random_steps=16),
        policy_options=WidthOptions(16),
        rollout_steps=128,
        frames=4 * 128 * 2,
        out=str(tmp_path_factory.mktemp("runs")),
        name="agent",
    )
    return run.start(config, quiet()).path


@pytest.fixture(scope="module")
def watched(trained):
    return watch(trained, WatchOptions(episodes=2, seed=3), quiet())


def test_the_cells_where_episodes_start_are_on_the_map(trained):
    entries = json.loads((trained / "rooms.json").read_text()).values()
    assert 1 <= sum(first == 0 for first, _ in entries) <= 4  # four environments


def table(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_all_files_are_written(watched):
    assert [path.suffix for path in watched] == [".mp4", ".png", ".svg", ".csv"]
    assert all(path.stat().st_size > 500 for path in watched)


def test_the_bonus_is_that_of_the_normalized_observation(trained, watched):
    """Against the networks called by hand, with mean and std from the checkpoint."""
    agent = load_agent(trained, "cpu")
    bonus = agent.bonus
    moments = bonus.whiten.moments
    mean, std = moments.mean.numpy().astype(np.float32), np.sqrt(np.maximum(moments.var.numpy(), 1e-12))
    rows = table(watched[3])
    number = next(k for k in range(2) if np.array_equal(episode(agent, 3, k).bonus, [float(r["bonus"]) for r in rows]))
    seen = []
    original = bonus.score
    bonus.score = lambda moves: (seen.append(moves.next_obs[0, 0].clone()), original(moves))[1]
    list(play(agent, 3, number, screens=False))
    for obs, row in zip(seen, rows, strict=True):
        white = torch.tensor(np.clip((obs.numpy() - mean) / std.astype(np.float32), -5, 5))[None]
        with torch.no_grad():
            expected = float((bonus.predictor(white) - bonus.target(white)).square().mean())
        assert float(row["bonus"]) == pytest.approx(expected, rel=1e-4)


def test_the_same_seed_plays_the_same_episode_and_another_does_not(trained):
    agent = load_agent(trained, "cpu")
    first, second, other = episode(agent, 1, 0), episode(agent, 1, 0), episode(agent, 1, 1)
    assert np.array_equal(first.bonus, second.bonus) and first.steps == second.steps
    assert not np.array_equal(first.bonus, other.bonus)


def test_the_best_of_several_episodes_is_shown(trained, tmp_path):
    agent = load_agent(trained, "cpu")
    played = [episode(agent, 5, k) for k in range(3)]
    best = max(played, key=lambda e: (e.score, e.bonus.max()))
    paths = watch(trained, WatchOptions(episodes=3, seed=5, out=str(tmp_path / "best")), quiet())
    assert [float(row["bonus"]) for row in table(paths[3])] == best.bonus.tolist()


def frames_of(path):
    video, found = cv2.VideoCapture(str(path)), []
    while (answer := video.read())[0]:
        found.append(answer[1][..., ::-1])
    return found


def test_the_videos_curve_is_the_recorded_bonus(watched):
    """The pixels of the curve in the last frame are at the heights of the values in the table."""
    bonus = np.array([float(row["bonus"]) for row in table(watched[3])])
    frames = frames_of(watched[0])
    assert len(frames) == len(bonus) and frames[0].shape == (HEIGHT, WIDTH, 3)
    last = frames[-1].astype(int)
    near = np.abs(last - ACCENT).sum(axis=2) < 150
    x, y, width, height = CURVE
    top = bonus.max() * 1.08
    checked = 0
    for index in range(1, len(bonus) - 1):
        if not bonus[index - 1] == bonus[index] == bonus[index + 1]:
            continue  # on a slope the line covers many heights
        column = round(x + (width - 1) * index / (len(bonus) - 1))
        row = y + (height - 1) * (1 - bonus[index] / top)
        lit = np.flatnonzero(near[y - 4 : y + height + 4, column]) + y - 4
        assert len(lit) and np.abs(lit - row).min() <= 2, f"step {index}"
        checked += 1
    assert checked > 5


def test_the_curve_runs_from_corner_to_corner():
    overlay = Overlay("x", np.array([0.0, 1.0, 2.0]), [])
    x, y, width, height = CURVE
    assert overlay.point(0, 0.0) == (x, y + height - 1)
    assert overlay.point(2, 2.16) == pytest.approx((x + width - 1, y))


def test_spikes_have_their_numbers_in_the_table(watched):
    numbers = [int(row["spike"]) for row in table(watched[3]) if row["spike"]]
    assert numbers == list(range(1, len(numbers) + 1)) and numbers


def test_vectors_become_squares():
    image = as_image(np.array([0.0, 0.5, 1.0, 2.0, -1.0], np.float32))
    assert image.tolist() == [[0, 127, 255], [255, 0, 0], [0, 0, 0]]


def test_montezuma_shows_its_screen_and_names_what_happens():
    """Walking straight off the first ledge costs a life."""
    config = replace(preset("montezuma"), env=replace(preset("montezuma").env, num_envs=1, sticky=0.0))
    env, single_env = environment(config, 1, 0)
    env.reset()
    events, seen = Events(env.spec, single_env, env.buffers.arrays), []
    image = screen(single_env, env.buffers["obs"][0])
    assert image.shape == (210, 160, 3) and image.std() > 10
    for _ in range(20):
        out = env.step(np.array([3]))  # right
        seen += events.after(float(out.reward[0]), bool(out.done[0]))
    assert seen == ["life lost"]
    env.close()


def rows_of_watch(tmp_path, env_id, *, frames=512, **changes):
    """The table and the video of an agent that was hardly trained, and its steps."""
    config = preset(env_id)
    options = BonusOptions(features=8, hidden=16, keep=1.0, random_steps=16)
    env = replace(config.env, num_envs=4)
    config = replace(config, env=env, bonus_options=options, rollout_steps=64, frames=frames, writers="none")
    config = resolve(replace(config, **changes))
    path = run.start(replace(config, out=str(tmp_path / "runs"), name="agent"), quiet()).path
    written = watch(path, WatchOptions(seed=1), quiet())
    return table(written[3]), frames_of(written[0]), episode(load_agent(path, "cpu"), 1, 0)


FACTORY = """
import gymnasium
import numpy as np


class Corridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    render_mode = "rgb_array"
    sparse = True

    def see(self):
        return np.eye(4, dtype=np.float32)[self.place]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self.see(), {}

    def step(self, action):
        self.place += 1
        return self.see(), float(self.place == 3), self.place == 3, False, {}

    def render(self):
        return np.full((8, 8, 3), 80 * self.place, np.uint8)


class Around(Corridor):  # five steps around three places
    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return super().reset(seed=seed)

    def step(self, action):
        self.steps += 1
        self.place = self.steps % 3
        return self.see(), 0.0, self.steps == 5, False, {}


def vector(num_envs):
    return gymnasium.vector.SyncVectorEnv([Corridor] * num_envs)
"""


@pytest.fixture
def corridor(tmp_path, monkeypatch):
    (tmp_path / "corridor_env.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(tmp_path)
    yield "corridor_env:Corridor"
    sys.modules.pop("corridor_env", None)


def test_a_run_of_the_builtin_environments_can_be_watched(tmp_path):
    rows, frames, played = rows_of_watch(tmp_path, "rnd/DeepSea-4")
    assert len(rows) == len(frames) == 4
    assert rows[-1]["bonus"] == "" and all(row["bonus"] for row in rows[:-1])  # there is no cell below the last row
    assert float(rows[-1]["return"]) == played.score


def test_a_run_of_a_users_function_shows_the_success_of_its_last_step(tmp_path, corridor):
    """The reward, the bonus and the image of the last transition are those from before the reset."""
    rows, frames, _ = rows_of_watch(tmp_path, corridor, policy="mlp")
    assert [(float(row["reward"]), float(row["return"])) for row in rows] == [(0, 0), (0, 0), (1, 1)]
    assert rows[-1]["events"] == "reward +1; end of the episode"
    x, y, width, height = GAME
    middle = [int(frame[y + height // 2, x + width // 2].mean()) for frame in frames]
    assert middle == pytest.approx([80, 160, 240], abs=4)
    agent = load_agent(tmp_path / "runs" / "agent", "cpu")
    last = torch.eye(4)[None, [3]]
    ending = Transitions(torch.cat([torch.eye(4)[None, [2]], last]), torch.zeros(2, 1), torch.zeros(1, 1).long(), 1)
    assert float(rows[-1]["bonus"]) == pytest.approx(float(agent.bonus.score(ending)), rel=1e-5)


def test_the_bonus_remembers_the_episode(tmp_path, corridor):
    """Places that were seen before in the episode are no news for NovelD, and E3B's ellipse grows."""
    corridor = corridor.replace("Corridor", "Around")
    played = rows_of_watch(tmp_path / "a", corridor, policy="mlp", bonus="noveld")[2]
    assert (played.bonus[:2] > 0).all() and (played.bonus[2:] == 0).all()  # places 1 and 2, then 0, 1, 2 once more
    options = replace(BonusOptions(features=4, hidden=16, keep=1.0, random_steps=16))
    played = rows_of_watch(tmp_path / "b", corridor, policy="mlp", bonus="e3b", bonus_options=options)[2]
    agent = load_agent(tmp_path / "b" / "runs" / "agent", "cpu")
    states = torch.eye(4)[[0, 1, 2, 0, 1, 2]]
    moves = Transitions(states[:, None], torch.zeros(6, 1), torch.zeros(5, 1).long(), 1)
    first = replace(moves, frames=states[[0, 0], None], actions=moves.actions[:1])
    features = torch.cat([agent.bonus.embed(each)[:, 0] for each in (first, moves)]).double().numpy()
    ellipse = 0.1 * np.eye(4)
    for number, phi in enumerate(features):
        if number:
            assert played.bonus[number - 1] == pytest.approx(phi @ np.linalg.solve(ellipse, phi), rel=1e-4)
        ellipse += np.outer(phi, phi)


def test_a_vector_environment_that_resets_one_step_later_ends_with_its_last_transition(tmp_path, corridor):
    rows, frames, _ = rows_of_watch(tmp_path, corridor.replace("Corridor", "vector"), policy="mlp")
    assert [float(row["return"]) for row in rows] == [0, 0, 1] and len(frames) == 3


def test_the_last_step_of_an_atari_game_has_its_own_screen_and_no_bonus():
    config = replace(preset("montezuma"), env=replace(preset("montezuma").env, num_envs=1, max_episode_frames=80))
    env, single_env = environment(replace(config, bootstrap_truncated=False), 1, 0)
    env.reset()
    camera, done, before = Camera(single_env, env), False, None
    while not done:
        before = camera.image(done).copy()
        done = bool(env.step(np.array([3])).done[0])
    after_reset = screen(single_env, env.buffers["obs"][0])
    assert (camera.image(done) != after_reset).any() and "final_obs" not in env.buffers.arrays
    assert (camera.image(done) != before).mean() < 0.1  # the same room, a step later
    env.close()


def test_agents_in_files_leave_nothing_beside_them(trained, tmp_path, monkeypatch):
    """A folder of results may be under version control, or somebody else's."""
    monkeypatch.chdir(tmp_path)
    file = export_agent(trained, tmp_path / "results" / "name" / "agent.safetensors.xz")
    before = sorted(file.parent.iterdir())
    written = watch(file, WatchOptions(seed=3), quiet())
    assert sorted(file.parent.iterdir()) == before
    assert [str(path) for path in written] == [f"runs/watch/name.{kind}" for kind in ("mp4", "png", "svg", "csv")]
    saved = sorted((trained / "checkpoints").iterdir())[-1]
    watch(saved, WatchOptions(seed=3), quiet())
    assert not (saved / "watch").exists() and (tmp_path / "runs" / "watch" / f"{saved.name}.mp4").exists()


def test_an_agent_without_its_bonus_is_shown_without_it(trained, tmp_path):
    file = export_agent(trained, tmp_path / "policy.safetensors", bonus=False)
    said = io.StringIO()
    written = watch(file, WatchOptions(seed=3, out=str(tmp_path / "episode")), Console(file=said, width=400))
    assert "policy.safetensors has no bonus: its file has the policy alone" in said.getvalue()
    assert [path.name for path in written] == ["episode.mp4", "episode.csv"]
    assert written[0].stat().st_size > 500
    whole = watch(trained, WatchOptions(seed=3, out=str(tmp_path / "whole")), quiet())
    for shown, known in zip(table(written[1]), table(whole[3]), strict=True):
        assert shown["bonus"] == "" and (shown["return"], shown["place"]) == (known["return"], known["place"])
    cv2.setNumThreads(1)
    _, image = cv2.VideoCapture(str(written[0])).read()
    x, y, width, height = CURVE
    assert image.shape == (HEIGHT, WIDTH, 3)
    assert np.ptp(image[y : y + height, x : x + width].astype(int)) < 20, "no axes and no curve"


def test_no_checkpoint_and_wrong_numbers_are_errors(tmp_path, trained):
    with pytest.raises(UserError, match="does not exist"):
        watch(tmp_path / "nothing", WatchOptions(), quiet())
    with pytest.raises(UserError, match="must be greater than 0"):
        watch(trained, WatchOptions(episodes=0), quiet())


def test_an_exported_agent_plays_as_its_run_does(trained, tmp_path):
    file = export_agent(trained, tmp_path / "agent.safetensors")
    run_table, file_table = (
        watch(path, WatchOptions(seed=3, out=str(tmp_path / name)), quiet())[3]
        for path, name in ((trained, "run"), (file, "file"))
    )
    assert run_table.read_text() == file_table.read_text()


class Undrawable(CartPoleEnv):
    """Its renderer lacks something, as that of MuJoCo on a machine without a screen."""

    def render(self):
        raise RuntimeError("no\nscreen")


def test_an_environment_that_cannot_be_drawn_shows_what_the_networks_read(capfd, monkeypatch):
    gymnasium.register("Undrawable-v0", Undrawable)
    for number in range(2):
        env, single_env = environment(small("Undrawable-v0"), 1, number)
        env.reset()
        assert np.array_equal(screen(single_env, np.array([1.0])), np.full((1, 1, 3), 255))
        env.close()
    said = "Undrawable-v0 cannot be drawn (RuntimeError: no screen): what the networks read is shown\n"
    assert capfd.readouterr().err == said
    del gymnasium.registry["Undrawable-v0"]


@pytest.mark.parametrize(
    ("platform", "given", "expected"),
    [
        ("linux", {}, "egl"),
        ("linux", {"DISPLAY": ":0"}, None),
        ("linux", {"MUJOCO_GL": "osmesa"}, "osmesa"),
        ("darwin", {}, None),  # there egl is an error
    ],
)
def test_mujoco_draws_without_a_screen(platform, given, expected, monkeypatch):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)  # with what is set below it
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    _image_of.cache_clear()
    _image_of("FrozenLake-v1")
    assert os.environ.get("MUJOCO_GL") == expected


def test_a_reward_in_every_step_is_no_event():
    def of(*rewards):
        events = [(f"reward {reward:+g}",) if reward else () for reward in rewards]
        steps = [SimpleNamespace(reward=r, events=e) for r, e in zip(rewards, events, strict=True)]
        steps[-1].events += ("end of the episode",)
        return SimpleNamespace(steps=steps)

    assert events_near(of(0, 0, 1, 0), 2) == "reward +1, end of the episode"
    assert events_near(of(-0.1, -0.2, -0.1, 99.9), 2) == "end of the episode"


def test_titles_of_frames_are_inside_and_steps_are_whole(tmp_path, monkeypatch):
    steps = [PlayedStep(t, 0.1 * t, 0.0, 0.0, 1, 0, (), None) for t in range(4)]
    events = ("reward +1000", "door opened", "new room 17", "life lost", "end of the episode")
    steps[3] = replace(steps[3], events=events)
    frames = {index: np.zeros((210, 160, 3), np.uint8) for index in range(4)}
    figures = []
    monkeypatch.setattr("rnd.report.strip.save", lambda figure, *_: figures.append(figure) or [])
    draw_strip(PlayedEpisode(0, steps), [0, 1, 1, 1, 1, 2, 3], frames, tmp_path / "x", "title", "")
    figure = figures[0]
    figure.canvas.draw()
    titles = [axes.title for axes in figure.axes[1:]]
    assert titles[-1].get_text().startswith("7: reward")
    assert all(title.get_window_extent().x1 <= figure.bbox.x1 for title in titles)
    assert all(float(tick).is_integer() for tick in figure.axes[0].get_xticks())
