"""rnd.Bonus: kinds of observations, steps and rollouts, masks, freezing, saving, errors."""

from __future__ import annotations

import copy
import importlib
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import rnd
from rnd.api import starting_config
from rnd.checkpoint.export import read_tensors, write_tensors
from rnd.envs.factories import gym_factory
from rnd.envs.spaces import ObservationEncoder, space_from_dict, space_to_dict
from rnd.foundation.errors import UserError
from rnd.plugins.bonus_file import CARD, FORMAT

SMALL = {"features": 8, "hidden": 8, "device": "cpu"}
SPACES = {
    "vector": spaces.Box(-1, 1, (3,), np.float64),
    "matrix": spaces.Box(-1, 1, (2, 3)),
    "bytes": spaces.Box(0, 255, (128,), np.uint8),
    "discrete": spaces.Discrete(5, start=2),
    "multi": spaces.MultiDiscrete([3, 4]),
    "binary": spaces.MultiBinary(4),
    "dict": spaces.Dict({"b": spaces.Box(-1, 1, (2,)), "a": spaces.Discrete(3)}),
    "boxes": spaces.Dict({"x": spaces.Box(-1, 1, (2,)), "y": spaces.Box(-1, 1, (2, 2))}),
    "tuple": spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.Discrete(3))),
}
IMAGES = {
    "grey": spaces.Box(0, 255, (84, 84), np.uint8),
    "stack": spaces.Box(0, 255, (4, 84, 84), np.uint8),
    "last": spaces.Box(0, 255, (84, 84, 1), np.uint8),
    "colour": spaces.Box(0, 255, (40, 50, 3), np.uint8),
}
MIXED = {
    "stack with numbers": spaces.Dict({"view": IMAGES["stack"], "arm": spaces.Dict({"angle": SPACES["matrix"]})}),
    "colour with a choice": spaces.Tuple((SPACES["discrete"], IMAGES["colour"], IMAGES["grey"])),
}
ALL = SPACES | IMAGES | MIXED
ACTIONS = spaces.Discrete(2)


def batch(space, *lead, seed=0):
    """Random observations with a leading shape."""
    space.seed(seed)
    one = [space.sample() for _ in range(int(np.prod(lead)))]

    def stacked(values):
        if isinstance(values[0], dict):
            return {name: stacked([value[name] for value in values]) for name in values[0]}
        if isinstance(values[0], tuple):
            return tuple(stacked([value[i] for value in values]) for i in range(len(values[0])))
        return np.stack(values).reshape(*lead, *np.shape(values[0]))

    return stacked(one)


def tensors(obs):
    if isinstance(obs, dict):
        return {name: tensors(part) for name, part in obs.items()}
    return tuple(tensors(part) for part in obs) if isinstance(obs, tuple) else torch.as_tensor(obs)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("name", ["rnd", "autoencoder", "count", "dynamics"])
def test_every_bonus_reads_every_space_as_arrays_or_tensors(name, kind):
    space = ALL[kind]
    if name == "dynamics" and kind in ("grey", "last", "colour", "colour with a choice"):
        pytest.skip("dynamics reads stacks of four frames")
    if name == "autoencoder" and kind.startswith("colour"):
        pytest.skip("the same as grey, after the encoder")
    bonus = rnd.Bonus(name, space, action_space=ACTIONS, num_envs=2, **SMALL)
    bonus.warm_up(batch(space, 3, 2))
    obs, next_obs, actions = batch(space, 2, seed=1), batch(space, 2, seed=2), np.array([0, 1])
    given = {"obs": obs, "actions": actions} if bonus.reads_action else {}
    score = bonus.score(next_obs, **given)
    assert isinstance(score, np.ndarray)
    assert score.shape == (2,)
    assert (score > 0).all()
    as_tensors = {key: tensors(value) for key, value in given.items()}
    assert torch.equal(bonus.score(tensors(next_obs), **as_tensors), torch.from_numpy(score))
    for _ in range(3):
        reward = bonus.observe(next_obs, **given)
    assert isinstance(bonus.observe(tensors(next_obs), **as_tensors), torch.Tensor)
    assert reward.dtype == np.float32
    before = bonus.score(next_obs, **given)
    assert np.isfinite(list(bonus.update().values())).all()
    assert (bonus.score(next_obs, **given) != before).all()
    assert bonus.update() == {}


@pytest.mark.parametrize("kind", ALL)
def test_the_encoding_is_that_of_the_environments(kind):
    """The quick ways for numbers and grey frames give what the one-by-one encoder of `rnd train` writes."""
    space = ALL[kind]
    encoder, obs = ObservationEncoder(space), batch(space, 2, 3)
    assert torch.equal(encoder(obs), encoder._one_by_one(obs, (2, 3)))


def test_minigrid_is_one_hot_as_in_training():
    from rnd.envs.factories import gym_factory
    from rnd.envs.observations import make_encoder

    env_id = "MiniGrid-Empty-5x5-v0"
    env = gym_factory(env_id)()
    obs, _ = env.reset(seed=0)
    spec, write = make_encoder(env.observation_space, env_id)
    expected = np.zeros(spec.shape, np.float32)
    write(obs, expected)
    rows = {"image": obs["image"][None], "direction": np.array([obs["direction"]]), "mission": (obs["mission"],)}
    assert np.array_equal(ObservationEncoder(env.observation_space)(rows)[0], expected)


@pytest.mark.parametrize("kind", SPACES)
def test_spaces_survive_as_plain_data(kind):
    assert space_from_dict(space_to_dict(SPACES[kind])) == SPACES[kind]


def test_score_and_warm_up_change_no_weight_and_no_scale():
    space = SPACES["vector"]
    bonus = rnd.Bonus("rnd", space, num_envs=2, **SMALL)
    bonus.observe(batch(space, 4, 2))
    before = {name: value.clone() for name, value in bonus.scaler.state_dict().items()}
    bonus.score(batch(space, 7))
    bonus.warm_up(batch(space, 50))
    assert all(torch.equal(value, before[name]) for name, value in bonus.scaler.state_dict().items())
    assert float(bonus.module.whiten.moments.count) == pytest.approx(50, abs=1e-3)


def test_the_callers_random_numbers_stay_as_they_are():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    rnd.Bonus("rnd", SPACES["vector"], seed=1, **SMALL)
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("name", ["rnd", "noveld", "dynamics"])
def test_observations_are_copied(name):
    """Environments write the next observation into the same tensor."""
    space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    bonus = rnd.Bonus(name, space, num_envs=2, action_space=spaces.Discrete(2), device="cpu")
    obs, next_obs = (torch.full((2, 4, 84, 84), value, dtype=torch.uint8) for value in (1, 2))
    bonus.observe(next_obs, obs, np.array([0, 1]), done=np.zeros(2, bool))
    for written in (obs, next_obs):
        written.fill_(7)
    (steps,) = bonus._pending
    assert steps.next_obs.unique().tolist() == [2]
    assert steps.obs is None or 7 not in steps.obs


def test_steps_that_are_no_transitions_count_for_nothing():
    """Rows that are masked give the same bonus as rows that are not there."""
    space, rng = SPACES["vector"], np.random.default_rng(0)
    plain, masked = (rnd.Bonus("rnd", space, num_envs=2, keep=1.0, **SMALL) for _ in range(2))
    obs = batch(space, 6, 2)
    expected = [plain.observe(row) for row in obs]
    rewards = []
    for row in obs:
        rewards.append(masked.observe(row, valid=np.array([True, True])))
        assert (masked.observe(rng.normal(size=(2, 3)), valid=np.array([False, False])) == 0).all()
    np.testing.assert_allclose(rewards, expected, rtol=1e-6)
    assert plain.update()["bonus_loss"] == pytest.approx(masked.update()["bonus_loss"], rel=1e-6)
    for name, value in plain.module.state_dict().items():
        torch.testing.assert_close(masked.module.state_dict()[name], value)


def test_nothing_is_learned_from_a_step_that_is_no_transition():
    """Where it is one environment's alone."""
    space, valid = SPACES["vector"], np.array([[True, True], [True, False], [True, True]])
    one, other = (rnd.Bonus("rnd", space, num_envs=2, keep=1.0, **SMALL) for _ in range(2))
    obs = batch(space, 3, 2)
    changed = obs.copy()
    changed[1, 1] = -obs[1, 1]
    for bonus, seen in ((one, obs), (other, changed)):
        bonus.observe(seen, valid=valid)
        bonus.update()
    for name, value in one.module.state_dict().items():
        assert torch.equal(other.module.state_dict()[name], value), name


def test_one_masked_environment_leaves_the_sum_of_that_environment():
    bonus = rnd.Bonus("rnd", SPACES["vector"], num_envs=2, **SMALL)
    bonus.observe(batch(SPACES["vector"], 3, 2))
    before = bonus.scaler.carry_N.clone()
    reward = bonus.observe(batch(SPACES["vector"], 1, 2), valid=np.array([[True, False]]))
    assert reward[0, 0] > 0 == reward[0, 1]
    assert bonus.scaler.carry_N[0] != before[0]
    assert bonus.scaler.carry_N[1] == before[1]


def test_the_first_step_of_all_is_zero_because_one_step_has_no_deviation():
    bonus = rnd.Bonus("rnd", SPACES["vector"], num_envs=1, **SMALL)
    rewards = [float(bonus.observe(batch(SPACES["vector"], 1, seed=t))[0]) for t in range(50)]
    assert rewards[0] == 0
    assert all(0 < reward < 10 for reward in rewards[1:])


def test_frozen_rewards_change_nothing():
    space = SPACES["vector"]
    bonus = rnd.Bonus("rnd", space, num_envs=2, **SMALL)
    bonus.observe(batch(space, 4, 2))
    bonus.update()
    bonus.freeze()
    before = str(bonus.state_dict())
    first = bonus.observe(batch(space, 2, seed=3))
    assert np.array_equal(bonus.observe(batch(space, 2, seed=3)), first)
    np.testing.assert_allclose(first, bonus.score(batch(space, 2, seed=3)) / bonus.scale, rtol=1e-6)
    bonus.warm_up(batch(space, 9))
    assert bonus.update() == {}
    assert str(bonus.state_dict()) == before
    bonus.freeze(False)
    bonus.observe(batch(space, 2))
    bonus.freeze()
    assert bonus.update() == {}, "what was observed before it was frozen waits"
    bonus.freeze(False)
    assert bonus.update()


def test_gradients_are_not_needed_around_it():
    for context in (torch.no_grad, torch.inference_mode):
        bonus = rnd.Bonus("rnd", SPACES["vector"], num_envs=2, update_every=2, **SMALL)
        with context():
            for t in range(6):
                bonus.observe(batch(SPACES["vector"], 2, seed=t))
        assert bonus.updates == 3


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rnd", "dict"),
        ("dynamics", "stack"),
        ("count", "vector"),
        ("snd-v", "vector"),
        ("snd-vic", "dict"),
        ("drnd", "tuple"),
        ("noveld", "discrete"),
        ("dynamics", "stack with numbers"),
    ],
)
def test_saved_bonuses_continue_exactly(name, kind, tmp_path):
    """Saved in the middle of a rollout: statistics, scale, weights, optimiser, draws, and what waits for the update."""
    space = ALL[kind]
    bonus = rnd.Bonus(name, space, action_space=ACTIONS, num_envs=2, keep=0.5, update_every=4, seed=7, **SMALL)

    def play(one, start, stop):
        rewards = []
        for t in range(start, stop):
            given = {"obs": batch(space, 2, seed=t), "actions": np.array([0, 1])} if one.reads_obs else {}
            rewards.append(one.observe(batch(space, 2, seed=t + 1), **given, done=np.array([False, t % 3 == 0])))
        return np.array(rewards)

    play(bonus, 0, 6)
    bonus.notes = {"coef": 0.5}
    bonus.save(tmp_path / "bonus.safetensors")
    loaded = rnd.Bonus.load(tmp_path / "bonus.safetensors", device="cpu")
    assert loaded.notes == {"coef": 0.5}
    assert np.array_equal(play(bonus, 6, 13), play(loaded, 6, 13))
    assert loaded.updates == bonus.updates == 3
    assert loaded.observation_space == space


def test_a_bonus_of_an_older_version_reads_the_image_alone(tmp_path):
    """Its file does not say what it reads."""
    space, view = MIXED["stack with numbers"], IMAGES["stack"]
    old = rnd.Bonus("rnd", view, num_envs=2, **SMALL)
    old.observation_space = space  # what was saved for a dictionary with an image
    old.save(tmp_path / "new.safetensors")
    card, tensors = read_tensors(tmp_path / "new.safetensors", "rnd.bonus", "", 1)
    del card["config"]["env"]["reads"]
    write_tensors(tmp_path / "old.safetensors", tensors, "rnd.bonus", card)
    obs = batch(space, 2)
    loaded = rnd.Bonus.load(tmp_path / "old.safetensors", device="cpu")
    assert np.array_equal(loaded.score(obs), old.score(obs["view"]))
    with pytest.raises(UserError, match=r"lacks the state of bonus: .*vector"):
        rnd.Bonus.load(tmp_path / "new.safetensors", device="cpu")


def test_a_bonus_depends_on_every_part(tmp_path):
    space = MIXED["stack with numbers"]
    bonus, obs = rnd.Bonus("rnd", space, num_envs=2, **SMALL), batch(space, 2)
    bonus.warm_up(batch(space, 20))
    score, other = bonus.score(obs), batch(space, 2, seed=3)
    for part in space:
        assert (bonus.score(obs | {part: other[part]}) != score).all()
    obs["arm"]["angle"][1, 0, 0] = np.nan
    with pytest.raises(UserError, match=r"observation at \[1, 0\] \(leading shape, component\) is NaN"):
        bonus.score(obs)


def test_a_bonus_can_be_loaded_for_another_number_of_environments(tmp_path):
    bonus = rnd.Bonus("rnd", SPACES["vector"], num_envs=4, **SMALL)
    bonus.observe(batch(SPACES["vector"], 8, 4))
    bonus.save(tmp_path / "b.safetensors")
    loaded = rnd.Bonus.load(tmp_path / "b.safetensors", device="cpu", num_envs=3)
    assert loaded.scale == bonus.scale
    assert loaded.observe(batch(SPACES["vector"], 3)).shape == (3,)
    assert loaded.update()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rnd.Bonus("rmd", SPACES["vector"]), "unknown bonus 'rmd'; nearest: rnd"),
        (lambda: rnd.Bonus("rnd", SPACES["vector"], fetures=3), "no option fetures; nearest: features"),
        (lambda: rnd.Bonus("dynamics", SPACES["vector"]), "give it action_space"),
        (lambda: rnd.Bonus("rnd", SPACES["vector"], num_envs=6, minibatches=4), "6 environments do not divide"),
        (lambda: rnd.Bonus("rnd", SPACES["vector"], lr=-1.0), "lr must be greater than 0"),
        (lambda: rnd.Bonus("rnd", SPACES["vector"], update_every=0), "update_every must be 1 or more"),
        (lambda: rnd.Bonus("rnd", SPACES["vector"], **SMALL).observe(np.zeros((2, 3))), "for 1 environments"),
        (lambda: rnd.Bonus("rnd", SPACES["vector"], **SMALL).observe(np.zeros((1, 4))), "of the shape"),
        (lambda: rnd.Bonus("rnd", SPACES["vector"], **SMALL).observe(np.full((1, 3), np.inf)), "NaN or infinite"),
        (lambda: rnd.Bonus("rnd", SPACES["vector"], **SMALL).observe("text"), "no array or tensor"),
        (lambda: rnd.Bonus.load("nowhere.safetensors"), "nowhere.safetensors cannot be read"),
    ],
)
def test_mistakes_are_one_line(make, message):
    with pytest.raises(UserError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_dynamics_needs_s_t_and_a_t():
    bonus = rnd.Bonus("dynamics", SPACES["vector"], action_space=ACTIONS, **SMALL)
    with pytest.raises(UserError, match="reads s_t and a_t"):
        bonus.observe(batch(SPACES["vector"], 1))
    bonus = rnd.Bonus("dynamics", IMAGES["grey"], action_space=ACTIONS, **SMALL)
    with pytest.raises(UserError, match="FrameStackObservation"):
        bonus.observe(*(batch(IMAGES["grey"], 1) for _ in range(2)), actions=np.zeros(1, int))


def test_forgotten_updates_are_noticed_before_the_memory_is_full(monkeypatch):
    monkeypatch.setattr("rnd.plugins.bonus.MAX_PENDING", 1000)
    bonus = rnd.Bonus("rnd", SPACES["vector"], **SMALL)
    with pytest.raises(UserError, match=r"call bonus.update\(\) after each rollout"):
        for _ in range(200):
            bonus.observe(np.zeros((1, 3)))


def test_steps_that_are_never_learned_from_are_named_once(monkeypatch, recwarn):
    monkeypatch.setattr("rnd.plugins.bonus.MANY_PENDING", 100)
    bonus, own = (rnd.Bonus("rnd", SPACES["vector"], **SMALL | changes) for changes in ({}, {"update_every": 50}))
    for i in range(250):
        bonus.observe(np.zeros((1, 3)))
        own.observe(np.zeros((1, 3)))
        assert len(recwarn) == (i >= 99)
    assert "100 observed steps wait for an update" in str(recwarn[0].message) and recwarn[0].filename == __file__
    bonus.update()
    bonus.observe(np.zeros((100, 1, 3)))
    assert len(recwarn) == 2


def test_the_space_of_all_environments_is_noticed():
    bonus = rnd.Bonus("rnd", spaces.Box(-1, 1, (4, 3)), num_envs=4, features=8, hidden=8, device="cpu")
    with pytest.raises(UserError, match=r"not \(\); if the space is that of all environments, give envs.single_obs"):
        bonus.observe(np.zeros((4, 3), np.float32))
    for space, obs in ((SPACES["vector"], np.zeros(3)), (SPACES["discrete"], np.array(2))):  # one observation of four
        bonus = rnd.Bonus("rnd", space, num_envs=4, features=8, hidden=8, device="cpu")
        with pytest.raises(UserError, match=r"for 4 environments, not \(\)$"):
            bonus.observe(obs)


def test_threads_take_turns():
    """Each observes 50 steps; updates come between them, and every step is learned from once."""
    bonus = rnd.Bonus("rnd", SPACES["vector"], num_envs=2, update_every=4, epochs=1, **SMALL)
    obs = batch(SPACES["vector"], 50, 2)
    with ThreadPoolExecutor(4) as pool:
        rewards = [*pool.map(lambda _: [bonus.observe(one) for one in obs], range(4))]
    assert all(np.isfinite(step).all() for thread in rewards for step in thread)
    assert bonus.updates == 4 * 50 // 4 and not bonus._pending
    assert float(bonus.module.whiten.moments.count) == pytest.approx(4 * 50 * 2, abs=1)


def test_it_is_saved_or_copied_and_not_pickled():
    bonus = rnd.Bonus("rnd", SPACES["vector"], **SMALL)
    with pytest.raises(TypeError, match=r"bonus\.save\(path\).*rnd\.Bonus\.load\(path\)"):
        pickle.dumps(bonus)
    other, obs = copy.deepcopy(bonus), batch(SPACES["vector"], 6, 1)
    assert np.array_equal(other.observe(obs), bonus.observe(obs))
    assert other.update() == bonus.update()


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Discrete(3, start=5), spaces.MultiDiscrete([3, 4])])
@pytest.mark.parametrize("wrong", [99, -1, 0.5])
def test_actions_of_another_space_are_refused(space, wrong):
    bonus = rnd.Bonus("dynamics", SPACES["vector"], action_space=space, num_envs=2, **SMALL)
    obs, actions = batch(SPACES["vector"], 2), batch(space, 2)
    bonus.observe(obs, obs, actions)
    bonus.observe(obs, obs, actions.astype(np.float32))
    actions = actions.astype(float)
    actions[1] = wrong
    with pytest.raises(UserError, match=rf"the actions hold {wrong}.*, which is no action of {type(space).__name__}"):
        bonus.observe(obs, obs, actions)


@pytest.mark.parametrize("kind", ["grey", "stack", "last"])
@pytest.mark.parametrize("wrong", [256, -1, 0.5])
def test_pixels_that_are_no_bytes_are_refused(kind, wrong):
    bonus = rnd.Bonus("rnd", IMAGES[kind], **SMALL)
    pixels = batch(IMAGES[kind], 1)
    assert bonus.score(pixels.astype(np.int64)) == bonus.score(pixels) == bonus.score(pixels.astype(np.float32))
    with pytest.raises(UserError, match="the pixels are not whole numbers from 0 to 255"):
        bonus.score(np.full_like(pixels, wrong, dtype=type(wrong)))


HUGE = {
    "environments": (("config", "env", "num_envs"), 2**31 - 1),
    "choices": (("observation_space",), {"kind": "Discrete", "n": 10**9, "start": 0}),
    "bits": (("observation_space",), {"kind": "MultiBinary", "n": [10**5, 10**5]}),
    "parts": (("observation_space",), {"kind": "Tuple", "parts": [{"kind": "Discrete", "n": 10**6, "start": 0}] * 999}),
}


@pytest.mark.parametrize("what", HUGE)
@pytest.mark.parametrize("name", ["rnd", "count"])
def test_a_small_file_that_announces_much_is_refused(name, what, tmp_path, monkeypatch):
    """Before anything of that size is made."""
    way, value = HUGE[what]
    rnd.Bonus(name, SPACES["vector"], minibatches=1, **SMALL).save(tmp_path / "bonus")
    card, saved = read_tensors(tmp_path / "bonus", CARD, "", FORMAT)
    inner = card
    for key in way[:-1]:
        inner = inner[key]
    inner[way[-1]] = value
    write_tensors(tmp_path / "bonus", saved, CARD, card)
    monkeypatch.setattr(rnd.Bonus, "_build", lambda *_, **__: pytest.fail("it is built"))
    with pytest.raises(
        UserError, match=r"of 1 environments instead of 2147483647|observations have [\d,]{11,} numbers"
    ):
        rnd.Bonus.load(tmp_path / "bonus")


def test_files_of_others_are_refused(tmp_path):
    path = tmp_path / "bonus.safetensors"
    path.write_bytes(b"no tensors at all")
    with pytest.raises(UserError, match="is not a bonus saved by rnd"):
        rnd.Bonus.load(path)
    bonus = rnd.Bonus("rnd", SPACES["vector"], **SMALL)
    bonus.config = replace(bonus.config, bonus_options=rnd.config.BonusOptions(features=9, hidden=8))
    bonus.save(path)
    with pytest.raises(UserError, match=r"bonus.safetensors: it does not fit the bonus that its config describes"):
        rnd.Bonus.load(path)
    bonus.config = rnd.Config(bonus="nowhere:Strange", policy="mlp", writers="none")
    bonus.save(path)
    with pytest.raises(UserError, match="names code that you have not trained with: nowhere:Strange"):
        rnd.Bonus.load(path)


def test_two_streams_takes_arrays_and_tensors():
    rng = np.random.default_rng(0)
    rewards, values = rng.normal(size=(2, 5, 3)).astype(np.float32), rng.normal(size=(2, 6, 3)).astype(np.float32)
    dones, limits = rng.random((5, 3)) < 0.3, rng.random((5, 3)).astype(np.float32)
    arrays = rnd.two_streams(*rewards, *values, dones, truncated_values=limits)
    given = map(torch.from_numpy, (*rewards, *values, dones))
    same = rnd.two_streams(*given, truncated_values=torch.from_numpy(limits))
    for array, tensor in zip(arrays, same, strict=True):
        assert isinstance(array, np.ndarray)
        assert np.array_equal(array, tensor)
    # one step from the end, by hand: the extrinsic stream is cut or bootstrapped, the intrinsic one continues
    ext = rewards[0, -1] + 0.999 * (limits[-1] + np.where(dones[-1], 0, values[0, -1])) - values[0, -2]
    int_ = rewards[1, -1] + 0.99 * values[1, -1] - values[1, -2]
    np.testing.assert_allclose(arrays.advantages_TN[-1], 2 * ext + int_, rtol=1e-4)
    with pytest.raises(UserError, match=r"values_ext has the shape \(5, 3\) instead of \(6, 3\)"):
        rnd.two_streams(*rewards, values[0][:5], values[1], dones)
    with pytest.raises(UserError, match="gamma-ext must be between 0 and 1"):
        rnd.two_streams(*rewards, *values, dones, gamma_ext=1.5)


def test_import_rnd_needs_nothing_and_imports_nothing():
    code = (
        "import sys, rnd; heavy = {'torch', 'numpy', 'gymnasium', 'stable_baselines3', 'torchrl'} & {*sys.modules};"
        "assert not heavy, heavy; assert set(rnd.__all__) <= {*dir(rnd)}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("plugin", "package"), [("sb3", "stable_baselines3"), ("torchrl", "tensordict")])
def test_a_missing_extra_names_the_command_that_installs_it(plugin, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"rnd.plugins.{plugin}", raising=False)
    with pytest.raises(ImportError, match=rf'pip install ".*\[{plugin}\]"'):
        importlib.import_module(f"rnd.plugins.{plugin}")


def test_gymnasium_spaces_of_a_real_environment():
    env = gymnasium.make("CartPole-v1")
    assert rnd.Bonus("rnd", env.observation_space, **SMALL).score(np.zeros((5, 4))).shape == (5,)


@pytest.mark.parametrize("game", ["CartPole-v1", "FrozenLake-v1", "MiniGrid-Empty-5x5-v0", "ALE/Breakout-v5"])
def test_sizes_and_rates_are_those_of_rnd_train(game):
    expected = starting_config(game, {"bonus": "rnd"})
    space = spaces.Box(0, 255, (4, 84, 84), np.uint8)  # as Atari's wrappers give it
    if not game.startswith("ALE/"):
        space = gym_factory(game)().observation_space
    config = rnd.Bonus("rnd", space, num_envs=expected.env.num_envs, device="cpu").config
    assert config.lr == (expected.bonus_lr or expected.lr)
    for name in ("epochs", "minibatches", "keep", "bonus_options"):
        assert getattr(config, name) == getattr(expected, name), name


def test_images_of_other_sizes_have_the_preset_of_images():
    config = rnd.Bonus("rnd", spaces.Box(0, 255, (64, 64, 3), np.uint8), device="cpu").config
    assert (config.lr, config.epochs, config.keep, config.bonus_options.features) == (1e-3, 2, 0.25, 64)
    given = rnd.Bonus("rnd", SPACES["vector"], lr=0.5, epochs=3, features=7, device="cpu").config
    assert (given.lr, given.epochs, given.bonus_options.features, given.bonus_options.hidden) == (0.5, 3, 7, 128)
