"""Traces: an episode is played again without the agent, and every step of it is checked."""

import base64
import json
import tracemalloc
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_evaluation import trained

from helpers import on_device
from rnd import cli, envs
from rnd.checkpoint.export import load_agent
from rnd.config import Config, EnvConfig
from rnd.envs import native
from rnd.foundation.errors import RunError, UserError
from rnd.training import replay as replaying
from rnd.training.evaluation import evaluate
from rnd.training.replay import Stop, describe, extend, make_backends, record, refuse_random, replay
from rnd.training.trace import Trace, check_actions, episode_config, read_trace, weights_hash

FRAMES = 240
TRACE = Path(__file__).parents[2] / "results" / "montezuma-cnn" / "trace.json"


def random_trace(env_id="ALE/MontezumaRevenge-v5", steps=FRAMES // 4, number=3):
    """An episode of random actions, cut by the time limit of the game."""
    env = EnvConfig(id=env_id, num_envs=1, max_episode_frames=FRAMES, first=number)
    config = episode_config(Config(env=env, seed=7))
    actions = np.random.default_rng(0).integers(8, size=steps).astype(np.uint8)
    return Trace(config, actions, 7, 0.0, [1], {"name": "random"})


def written(trace, folder, **changes):
    """The file of a trace, with entries of its sections replaced: section__entry=value."""
    data = trace.to_dict()
    for name, value in changes.items():
        section, _, entry = name.partition("__")
        if entry:
            data[section][entry] = value
        else:
            data[section] = value
    path = folder / "trace.json"
    path.write_text(json.dumps(data))
    return path


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("cartpole"))


@pytest.mark.skipif(not native.available(), reason="no native core")
def test_both_emulators_play_the_same_episode(tmp_path):
    trace = random_trace()
    played = replay(trace)
    assert played.backends == ["native core", "ale-py"] and not played.missing
    assert (played.episode.length, played.episode.rooms) == (FRAMES // 4, frozenset({1}))
    assert played.route == [Stop(1, [])]
    trace = replace(trace, observations_sha256=played.observations_sha256)
    again = read_trace(written(trace, tmp_path))
    np.testing.assert_array_equal(again.actions, trace.actions)
    assert again.to_dict() == trace.to_dict()
    assert "confirmed by native core and ale-py: score 0, 60 steps, 1 rooms" in "\n".join(
        describe(again, replay(again))
    )
    other = replace(trace, config=replace(trace.config, seed=8))  # other sticky actions
    with pytest.raises(RunError, match="the frames are not those of the trace"):
        replay(other)


def test_the_route_names_new_rooms_and_where_rewards_were_earned():
    route: list[Stop] = []
    for room, reward in [(1, 0), (1, 100), (1, 300), (2, 0), (1, 0), (2, 0), (6, 100), (2, 0), (2, 2000), (259, -1)]:
        extend(route, room, float(reward))
    assert ", ".join(map(str, route)) == "room 1 +100 +300, room 2, room 6 +100, room 2 +2,000, room 3 of level 2 -1"


@pytest.mark.skipif(not native.available(), reason="no native core")
@pytest.mark.skipif(not TRACE.exists(), reason="no zoo")
def test_the_rewards_of_the_route_are_the_score():
    played = replay(read_trace(TRACE))
    assert sum(reward for stop in played.route for reward in stop.rewards) == played.episode.episode_return == 4600
    assert {stop.room for stop in played.route} == played.episode.rooms


@pytest.mark.skipif(not native.available(), reason="no native core")
def test_the_first_difference_is_named(monkeypatch):
    """ale-py plays with other sticky actions: of another environment."""

    def different(config):
        made, missing = make_backends(config)
        made["ale-py"].envs[0].random.state += 1
        return made, missing

    monkeypatch.setattr(replaying, "make_backends", different)
    with pytest.raises(RunError, match=r"step \d+: (RAM|frame) at .* differs: \d+ in the native core, \d+ in ale-py"):
        replay(random_trace())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score": 100.0}, r"the trace has the score 100\.0, .* gives 0\.0"),
        ({"rooms": [1, 2]}, r"the trace has the rooms \[1, 2\], .* gives \[1\]"),
        ({"actions": np.zeros(59, np.uint8)}, "the episode does not end with its last action, at step 59"),
        ({"actions": np.zeros(61, np.uint8)}, "the episode ends at step 60 of 61"),
    ],
)
def test_a_trace_that_claims_too_much_is_refused(changes, message):
    with pytest.raises(RunError, match=message):
        replay(replace(random_trace(), **changes))


def test_without_the_native_core_ale_py_plays_alone(monkeypatch):
    monkeypatch.setattr(replaying, "unsupported_reason", lambda config: "not built")
    played = replay(random_trace())
    assert (played.backends, played.missing) == (["ale-py"], ["the native core: not built"])


BOMB = base64.b64encode(zlib.compress(bytes(2**24))).decode()


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"env": []},
        {"env__id": 3},
        {"env__frame_skip": 2**30},
        {"env__sticky": 2.0},
        {"env__number": -1},
        {"env__seed": "1"},
        {"episode__steps": 7},
        {"episode__score": float("nan")},
        {"episode__rooms": [[]]},
        {"agent": "me"},
        {"actions__type": "|O"},
        {"actions__shape": [10**9]},
        {"actions__shape": [60, 10**6]},
        {"actions__shape": []},
        {"actions__zlib": BOMB},
        {"actions__zlib": "!"},
        {"actions__zlib": base64.b64encode(b"no zlib").decode()},
    ],
    ids=str,
)
def test_a_hostile_file_is_one_line(changes, tmp_path):
    path = written(random_trace(), tmp_path, **changes)
    with pytest.raises(UserError) as error:
        read_trace(path)
    assert str(path) in str(error.value) and len(str(error.value)) < 500 and "\n" not in str(error.value)


def test_a_small_file_does_not_fill_the_memory(tmp_path):
    path = written(random_trace(), tmp_path, actions__zlib=BOMB)  # 16 MB in 20 kB
    tracemalloc.start()
    with pytest.raises(UserError, match="61 bytes of actions instead of 60"):
        read_trace(path)
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def test_actions_that_the_environment_does_not_have_are_refused(tmp_path):
    path = written(
        random_trace(), tmp_path, actions=replace(random_trace(), actions=np.full(60, 200)).to_dict()["actions"]
    )
    with pytest.raises(UserError, match="actions that ALE/MontezumaRevenge-v5 does not have"):
        replay(read_trace(path))
    with pytest.raises(UserError, match="one action more"):
        spec = replace(make_backends(random_trace().config)[0]["ale-py"].spec, id="one action more")
        check_actions(np.zeros((3, 2), np.uint8), spec)


def test_a_strangers_trace_runs_no_code(tmp_path):
    path = written(random_trace(), tmp_path, env__id="os:getcwd", env__frame_skip=1)
    with pytest.raises(UserError, match="names code that you have not trained with: os:getcwd"):
        cli.dispatch(["replay", str(path)])


def test_evaluate_writes_the_trace_of_its_best_episode(cartpole, capsys):
    cli.dispatch(["evaluate", str(cartpole), "--episodes", "5", "--seed", "3", "--device", "cpu", "--trace"])
    trace, scores = read_trace(cartpole / "trace.json"), json.loads((cartpole / "evaluation.json").read_text())
    assert trace.score == max(scores["returns"]) == len(trace.actions)
    assert trace.number == int(np.argmax(scores["returns"])) > 0
    assert trace.agent["frames"] == scores["frames"]
    cli.dispatch(["replay", str(cartpole)])
    shown = capsys.readouterr().out
    assert f"CartPole-v1: episode {trace.number} of seed 3 of run" in shown
    assert f"confirmed by gymnasium, in this process: score {trace.score:g}, {len(trace.actions)} steps" in shown


@pytest.mark.parametrize(("env_id", "policy"), [("Pendulum-v1", "mlp"), ("rnd/DeepSea-4", "mlp")])
def test_other_environments_are_replayed_too(env_id, policy, tmp_path):
    agent = load_agent(trained(tmp_path, env_id, policy))
    trace = record(agent, "x", evaluate(agent, 3, seed=2))
    again = read_trace(written(trace, tmp_path))
    assert replay(again).episode.episode_return == trace.score
    assert again.agent["policy_sha256"] == weights_hash(agent.policy)


def test_the_actions_are_those_of_the_best_of_all_episodes(cartpole, monkeypatch):
    """Also where it is not among the last that were played at once."""
    agent = load_agent(cartpole)
    together = evaluate(agent, 6, seed=3)
    monkeypatch.setattr("rnd.training.evaluation.AT_ONCE", 2)
    found = evaluate(agent, 6, seed=3)
    np.testing.assert_array_equal(found.actions, together.actions)
    assert len(found.actions) == max(found.lengths)


def test_copies_that_share_a_seed_have_no_traces():
    config = on_device("examples.tensor_gridworld:make")
    with closing(envs.make(config)) as env, pytest.raises(UserError, match="cannot be played one by one: no trace"):
        refuse_random(env)


def test_an_environment_that_is_not_deterministic_has_no_trace(cartpole, monkeypatch):
    agent = load_agent(cartpole)
    result = evaluate(agent, 2, seed=3)
    with monkeypatch.context() as patch:
        patch.setattr("rnd.envs.gym_env.GymEnv.repeats", lambda self: False)
        with pytest.raises(UserError, match="CartPole-v1 draws randomness from elsewhere than its seed"):
            record(agent, "x", result)
    monkeypatch.setattr(replaying, "MAX_STEPS", max(result.lengths))
    with pytest.raises(UserError, match="the best episode has no end within"):
        record(agent, "x", result)
