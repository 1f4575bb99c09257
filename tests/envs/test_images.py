"""Images of Gymnasium environments, in every form in which they are found."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import cv2
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from rnd import envs
from rnd.commands import train
from rnd.config import Config, EnvConfig
from rnd.config.presets import changes
from rnd.envs.factories import kind_of
from rnd.envs.observations import make_encoder
from rnd.foundation.errors import RunError

RGB = np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8)
OLD = np.random.default_rng(1).integers(0, 256, (60, 80, 3), np.uint8)
GREY = np.ascontiguousarray(RGB[..., 0])


def encoded(space: spaces.Space, obs: object, **options: object) -> np.ndarray:
    spec, encoder = make_encoder(space, "test", **options)
    out = np.zeros(spec.shape, spec.dtype)
    encoder(obs, out)
    return out


def box(obs: np.ndarray, low: float = 0, high: float = 255) -> spaces.Box:
    return spaces.Box(low, high, obs.shape, obs.dtype.type)


def seen(rgb: np.ndarray) -> np.ndarray:
    """What the networks saw of HxWxC images before other forms were known: those must not change."""
    grey = rgb if rgb.ndim == 2 else cv2.cvtColor(rgb[..., :3], cv2.COLOR_RGB2GRAY)
    return cv2.resize(grey, (84, 84), interpolation=cv2.INTER_AREA)


UNIT = (RGB / 255).astype(np.float32)
ALPHA = np.dstack([RGB, OLD[..., 0]])


@pytest.mark.parametrize(
    ("obs", "bounds", "same_as"),
    [
        (RGB, (0, 255), RGB),
        (GREY, (0, 255), GREY),
        (GREY[..., None], (0, 255), GREY),
        (ALPHA, (0, 255), RGB),
        (RGB.transpose(2, 0, 1), (0, 255), RGB),
        (GREY[None], (0, 255), GREY),
        (UNIT, (0, 1), RGB),
        (UNIT.transpose(2, 0, 1).astype(np.float64), (0, 1), RGB),
        (RGB.astype(np.float32), (0, 255), RGB),
        (UNIT * 2 - 1, (-1, 1), RGB),
        (np.stack([OLD, RGB]), (0, 255), RGB),
        (np.stack([OLD, RGB]).transpose(0, 3, 1, 2), (0, 255), RGB),
        (np.stack([OLD, RGB], -1), (0, 255), RGB),
        (np.concatenate([OLD, OLD, OLD, RGB], -1), (0, 255), RGB),
        (np.concatenate([OLD, OLD, OLD, RGB], -1).transpose(2, 0, 1), (0, 255), RGB),
        (np.stack([OLD[..., 0], OLD[..., 1], OLD[..., 2], GREY]), (0, 255), GREY),
        (np.stack([GREY[:, 1:], GREY[:, :-1]] * 4, -1), (0, 255), GREY[:, :-1]),
    ],
    ids=lambda value: str(getattr(value, "shape", value)),
)
def test_every_form_gives_the_policy_the_same_input(obs, bounds, same_as):
    assert (encoded(box(obs, *bounds), obs) == seen(np.ascontiguousarray(same_as))).all()


def test_an_image_in_a_dictionary_or_tuple_can_be_the_observation():
    """Alone, or with --env.reads image, as in rnd 0.2 and before."""
    space = spaces.Dict({"speed": spaces.Box(-1, 1, (3,)), "view": spaces.Tuple([spaces.Text(5), box(RGB)])})
    obs = {"speed": np.zeros(3), "view": ("abc", RGB)}
    assert (encoded(space, obs, reads="image") == seen(RGB)).all()
    text, note = make_encoder(space, "test", "image")[0].notes
    assert text == "test: the networks do not see its text view.0"
    assert note == "test: the networks see its image view.1, not speed"
    two = spaces.Dict({"left": box(RGB), "right": box(RGB)})
    assert (encoded(two, {"left": RGB, "right": OLD}, reads="image") == seen(RGB)).all()
    assert make_encoder(two, "test", "image")[0].notes == ("test: the networks see its image left, not right",)
    assert make_encoder(spaces.Dict({"screen": box(RGB)}), "test")[0].notes == ()
    assert (encoded(spaces.Dict({"screen": box(RGB)}), {"screen": RGB}) == seen(RGB)).all()
    with pytest.raises(RunError, match="its observation has no entry 'view'"):
        encoded(space, {"speed": np.zeros(3)})


def test_what_is_left_out_of_a_stack_is_said():
    stack = np.stack([GREY] * 4)
    note = "test: of its 4 stacked frames the newest is read; rnd stacks frames itself"
    assert make_encoder(box(stack), "test")[0].notes == (note,)
    assert make_encoder(box(stack.transpose(1, 2, 0)), "test")[0].notes == ()  # opacity


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (spaces.Box(0, 255, (16, 16, 3), np.uint8), "image"),
        (spaces.Box(0, 1, (3, 32, 32), np.float32), "image"),
        (spaces.Box(0, 255, (7, 7, 3), np.uint8), "vector"),
        (spaces.Box(0, 10, (16, 16, 3), np.uint8), "vector"),
        (spaces.Box(0, 255, (24, 80), np.uint8), "vector"),
        (spaces.Box(0, 1, (10, 10, 6), np.float32), "vector"),
        (spaces.Box(0, 1, (10, 10, 4), bool), "vector"),
        (spaces.Box(-1, 1, (8, 5), np.float32), "vector"),
        (spaces.Box(-np.inf, np.inf, (60, 80, 3), np.float32), "vector"),
        (spaces.Box(0, 1, (84, 84, 40), np.float32), "vector"),
        (spaces.Box(0, 255, (128,), np.uint8), "vector"),
    ],
    ids=str,
)
def test_small_boxes_are_pictures_only_where_that_is_certain(space, kind):
    assert make_encoder(space, "test")[0].kind == kind


def test_the_cells_of_minigrid_are_no_image():
    from minigrid.core.mission import MissionSpace

    cells = spaces.Box(0, 255, (16, 16, 3), np.uint8)
    assert make_encoder(cells, "MiniGrid-Empty-16x16-v0")[0].shape == (16 * 16 * 21,)
    mission = spaces.Dict({"image": cells, "mission": MissionSpace(lambda: "")})
    assert make_encoder(mission, "my_module:full_view")[0].kind == "vector"


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        (np.full(RGB.shape, np.nan, np.float32), "NaN or far outside 0 to 1"),
        (np.full(RGB.shape, 200, np.float32), "NaN or far outside 0 to 1"),
        (np.zeros((3, 60, 80)), "has the shape"),
        (np.zeros(RGB.shape, complex), "has the type complex128"),
    ],
)
def test_a_wrong_float_image_is_refused(obs, message):
    with pytest.raises(RunError, match=message):
        encoded(box(UNIT, 0, 1), obs)


def test_a_long_vector_gets_advice():
    (note,) = make_encoder(spaces.Box(-np.inf, np.inf, (60, 80, 3)), "test")[0].notes
    assert note.startswith("test: an observation of 14,400 numbers") and "declare a Box" in note
    (note,) = make_encoder(box(RGB), "test", "vector")[0].notes
    assert "without --policy mlp it is read as an image" in note
    assert make_encoder(spaces.Box(-1, 1, (1029,)), "test")[0].notes == ()


class Screen(gymnasium.Env):
    """A channel-first float image in a dictionary."""

    observation_space = spaces.Dict({"pixels": spaces.Box(0, 1, (3, 60, 80)), "speed": spaces.Box(-1, 1, (2,))})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observation(), {}

    def step(self, action):
        return self._observation(), 0.0, False, False, {}

    def _observation(self):
        return {"pixels": UNIT.transpose(2, 0, 1), "speed": np.zeros(2, np.float32)}


def screens(num_envs):
    return SyncVectorEnv([Screen] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


@pytest.mark.parametrize("factory", ["Screen", "screens"])
def test_single_and_vector_environments_show_the_same_image(factory):
    config = EnvConfig(id=f"test_images:{factory}", num_envs=2)
    with closing(envs.make(Config(env=replace(config, reads="image")))) as env:
        assert (env.reset().numpy() == seen(RGB)).all() and len(env.spec.observation.notes) == 1
    with closing(envs.make(Config(env=config))) as env:
        expected = np.concatenate([seen(RGB).reshape(-1), np.zeros(2, np.float32).view(np.uint8)])
        assert (env.reset().numpy() == expected).all() and env.spec.observation.notes == ()
    flat = Config(env=EnvConfig(id=f"test_images:{factory}", num_envs=2), policy="mlp")
    with closing(envs.make(flat)) as env:
        assert env.reset().shape == (2, 3 * 60 * 80 + 2)


@pytest.mark.parametrize(
    ("arguments", "policy"),
    [
        (["test_images:Screen"], "cnn"),
        (["test_images:screens"], "cnn"),
        (["test_images:Screen", "--policy", "gru"], "gru"),
        (["test_images:Screen", "--env.reads", "image"], "cnn"),
        (["CartPole-v1"], "mlp"),
        (["FrozenLake8x8-v1"], "mlp"),
        (["pitfall"], "cnn"),
    ],
)
def test_the_policy_follows_from_the_observations(arguments, policy, monkeypatch):
    started = []
    monkeypatch.setattr("rnd.run.start", lambda config, console: started.append(config))
    train.main(arguments)
    assert started[0].policy == policy
    changed = {"env.reads": "image"} if "image" in arguments else {}
    assert changes(started[0], "experiment") == ({"policy": "gru"} if policy == "gru" else changed)


def test_what_the_networks_read_is_known_before_the_run():
    assert kind_of("MiniGrid-Empty-5x5-v0") == kind_of("rnd/DeepSea-20") == kind_of("FrozenLake8x8-v1") == "choices"
    assert kind_of("CartPole-v1") == "numbers"
    assert kind_of("test_images:Screen") == "image+vector"
    assert kind_of("pitfall") == kind_of("test_images:Screen", "image") == "image"
    assert kind_of("test_images:Screen", "vector") == "numbers"
