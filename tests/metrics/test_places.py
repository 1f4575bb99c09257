"""The map of a running run: written now and then, in the form that the report reads."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rnd import envs
from rnd.config.presets import small
from rnd.metrics import places
from rnd.metrics.episodes import EpisodeStats
from rnd.metrics.places import PlacesWriter


def test_the_map_is_written_between_checkpoints_but_not_at_every_row(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(places.time, "monotonic", lambda: now[0])
    stats = EpisodeStats()
    writer = PlacesWriter(tmp_path, stats)
    stats.update([], [1, 1, 0], 4096)
    writer.write({}, {})
    assert json.loads((tmp_path / "rooms.json").read_text()) == {"1": [4096, 2], "0": [4096, 1]}
    stats.update([], [258], 8192)
    writer.write({}, {})
    assert "258" not in (tmp_path / "rooms.json").read_text()
    now[0] += places.EVERY
    writer.write({}, {})
    assert json.loads((tmp_path / "rooms.json").read_text())["258"] == [8192, 1]


def test_cells_of_a_grid_are_places_and_no_rooms():
    stats = EpisodeStats(cells=True)
    stats.update([], [3 * 256 + 1, 4 * 256 + 1], 64)
    assert (stats.summary()["rooms"], stats.summary()["places"]) == (0, 2)


def test_minigrid_tells_where_the_agent_stands():
    config = small("MiniGrid-Empty-5x5-v0", "choices")
    env = envs.make(replace(config, env=replace(config.env, num_envs=2)))
    assert env.spec.has_cells
    env.reset()
    step = env.step(np.array([2, 0]))  # forward, and turn left
    assert step.info.room.tolist() == [1 * 256 + 2, 1 * 256 + 1]
    assert step.info.entered == [1 * 256 + 2]
    env.close()


LEFT, RIGHT, FORWARD = range(3)
START = 1 * 256 + 1


@pytest.mark.parametrize(
    ("actions", "last_entered", "visited"),
    [
        ([FORWARD, FORWARD, RIGHT, FORWARD, FORWARD], [3 * 256 + 3, START], {START, 258, 259, 515, 3 * 256 + 3}),
        ([LEFT] * 99 + [FORWARD], [2 * 256 + 1, START], {START, 2 * 256 + 1}),
        ([LEFT] * 100, [START], {START}),
    ],
    ids=["goal", "time limit", "no move at the time limit"],
)
def test_the_cell_of_the_last_step_of_an_episode_counts(actions, last_entered, visited):
    config = small("MiniGrid-Empty-5x5-v0", "choices")
    env = envs.make(replace(config, env=replace(config.env, num_envs=1)))
    env.reset()
    stats = EpisodeStats(cells=True)
    for action in actions:
        step = env.step(np.array([action]))
        stats.update(step.info.episodes, step.info.entered, 0)
    env.close()
    assert step.done.item() and step.info.room.item() == START
    assert step.info.entered == last_entered
    assert step.info.episodes[0].rooms == visited == stats.rooms.keys() | {START}
    assert stats.most_rooms_in_an_episode == len(visited)
