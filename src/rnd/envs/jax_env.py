"""Environments written in JAX, on the device of the run: `gymnax:ID`, `craftax:ID`, `navix:ID`, `brax:NAME`.

Legend: N copies, S starts of new episodes.

All copies are stepped by one function under jit and vmap. Arrays are handed over by DLPack, without a copy: on a GPU
each side waits for the other's stream, and the host for neither.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from rnd.envs.encoders import MINIGRID_CELL
from rnd.envs.tensor_env import TensorEnv, TensorStep
from rnd.foundation.errors import UserError, nearest


class Starts(NamedTuple):
    """Which starts copies get whose episode ends: N / `share` new ones every so many steps. The first copies that end
    take one each, later ones share them."""

    share: int = 1
    steps: int = 1


EACH_ITS_OWN = Starts()
STARTS = {"craftax": Starts(share=8, steps=16)}
"""A new world of Craftax takes nine times as long as a step of one copy (on a CPU)."""

BRAX_LIMIT = 1000
"""Steps of an episode, as in Brax's own training."""

Tree = Any
"""Nested containers of JAX arrays."""


class Suite(NamedTuple):
    """One copy of an environment as pure functions, and its spaces."""

    reset: Callable[[Any], tuple[Any, Tree]]
    """Observation and state of a new episode, from a key."""
    step: Callable[[Any, Tree, Any], tuple[Any, Tree, Any, Any, Any]]
    """Observation, state, reward, terminated, truncated; from a key, the state and the action. No reset."""
    observation_space: Any
    action_space: Any
    truncates: bool = True
    """Time limits are told from terminations. Else no final observations are kept."""
    cell: tuple[int, ...] = ()
    """The last axis of observations are choices: how many of each."""


class Pool(NamedTuple):
    """Starts of new episodes, for several steps."""

    obs: Any
    """Their observations [S, ...], and the states of their copies."""
    own: Tree
    used: Any
    """How many copies have ended since they were renewed."""
    age: Any
    """Steps since then."""


def make_jax_env(env_id: str, num_envs: int = 1, device: Any = "cpu") -> JaxEnv:
    """N copies of `suite:ID`."""
    suite, _, name = env_id.partition(":")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take three quarters of the GPU
    try:
        importlib.import_module("jax")
        package = importlib.import_module(suite)
    except ImportError as error:
        missing = (error.name or suite).partition(".")[0]  # which may be one that the suite forgets to name
        packages = f"jax {suite}" if missing == "jax" else missing
        raise UserError(f"{env_id} cannot be made ({error}): pip install {packages}") from error
    make = {"gymnax": gymnax_suite, "craftax": craftax_suite, "navix": navix_suite, "brax": brax_suite}[suite]
    return JaxEnv(make(package, name), num_envs, torch.device(device), STARTS.get(suite, EACH_ITS_OWN))


def gymnax_suite(package: Any, name: str) -> Suite:
    """gymnax: https://github.com/RobertTLange/gymnax."""
    if name not in package.registered_envs:
        raise UserError(f"gymnax has no environment {name}; {nearest(name, package.registered_envs)}")
    return functional_suite(*package.make(name))


def craftax_suite(package: Any, name: str) -> Suite:
    """Craftax (Matthews et al. 2024), with gymnax's interface."""
    maker = importlib.import_module("craftax.craftax_env").make_craftax_env_from_name
    known = [f"Craftax-{world}{kind}-v1" for world in ("", "Classic-") for kind in ("Symbolic", "Pixels")]
    if name not in known:
        raise UserError(f"craftax has no environment {name}; {nearest(name, known)}")
    env = maker(name, auto_reset=False)
    return functional_suite(env, env.default_params)


def functional_suite(env: Any, params: Any) -> Suite:
    """An environment with gymnax's `reset_env` and `step_env`. Before gymnax 1.0 an end by a time limit counts as a
    termination, as it does in Craftax."""
    from jax import numpy as jnp

    limit = getattr(env, "is_truncated", None)

    def step(key: Any, state: Tree, action: Any) -> tuple[Any, Tree, Any, Any, Any]:
        obs, state, reward, terminated, _ = env.step_env(key, state, action, params)
        truncated = limit(state, params) if limit else jnp.zeros_like(terminated)
        return obs, state, reward, terminated, truncated

    spaces_of = env.observation_space(params), env.action_space(params)
    return Suite(lambda key: env.reset_env(key, params), step, *spaces_of, truncates=limit is not None)


def navix_suite(package: Any, name: str) -> Suite:
    """NAVIX (Pignatelli et al. 2024): its state is a time step."""
    if name not in package.registry():
        raise UserError(f"navix has no environment {name}; {nearest(name, package.registry())}")
    env = package.make(name)

    def reset(key: Any) -> tuple[Any, Tree]:
        state = env.reset(key)
        return state.observation, state

    def step(key: Any, state: Tree, action: Any) -> tuple[Any, Tree, Any, Any, Any]:
        state = env._step(state, action)  # its `step` resets in the step after the end
        return state.observation, state, state.reward, state.is_termination(), state.is_truncation()

    space = env.observation_space
    symbolic = len(space.shape) == 3 and space.shape[-1] == len(MINIGRID_CELL)
    return Suite(reset, step, space, env.action_space, cell=MINIGRID_CELL if symbolic else ())


def brax_suite(package: Any, name: str) -> Suite:
    """Brax (Freeman et al. 2021): continuous actions between -1 and 1, and a time limit that its wrapper would set."""
    from jax import numpy as jnp

    makers = importlib.import_module("brax.envs")
    if name not in makers._envs:
        raise UserError(f"brax has no environment {name}; {nearest(name, makers._envs)}")
    env = makers.get_environment(name)

    def reset(key: Any) -> tuple[Any, Tree]:
        state = env.reset(key)
        return state.obs, (jnp.int32(0), state)

    def step(key: Any, state: Tree, action: Any) -> tuple[Any, Tree, Any, Any, Any]:
        time, now = state
        now, time = env.step(now, action), time + 1
        return now.obs, (time, now), now.reward, now.done > 0, time >= BRAX_LIMIT

    boxes = spaces.Box(-np.inf, np.inf, (int(env.observation_size),)), spaces.Box(-1, 1, (int(env.action_size),))
    return Suite(reset, step, *boxes)


class JaxEnv(TensorEnv):
    """N copies of a `Suite`. Images are read as vectors; a single choice, and the cells of NAVIX's grids, one-hot."""

    def __init__(self, suite: Suite, num_envs: int, device: torch.device, starts: Starts = EACH_ITS_OWN):
        import jax

        self.num_envs, self.suite = num_envs, suite
        self.jax: Any = jax
        self.device, self.jax_device = device, jax_device(device)
        self.num_starts, self.renewed_every = max(1, num_envs // starts.share), starts.steps
        name = type(suite.observation_space).__name__
        if not hasattr(suite.observation_space, "shape"):
            raise UserError(f"observations of the kind {name} are not supported; those of a Box are")
        shape = tuple(suite.observation_space.shape)
        self.choices = int(suite.observation_space.n) if name == "Discrete" and shape == () else 0
        size = self.choices or int(np.prod(shape))
        if suite.cell:
            size = size // len(suite.cell) * sum(suite.cell)
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space = gym_space(suite.action_space)
        # On a fixed device: what starts elsewhere, or anywhere, would make the first step compile once more.
        self._reset = jax.jit(self._start, out_shardings=jax.sharding.SingleDeviceSharding(self.jax_device))
        self._step, self._renew = jax.jit(self._advance), jax.jit(self._renewed)
        self.state: Tree = None
        self.age = 0
        """Steps since the starts were renewed; 0: they are due. The state on the device has it too."""

    def reset(self, seed: int) -> Tensor:
        obs, self.state = self._reset(self._key(seed))
        self.age = 0
        return from_dlpack(obs)

    def step(self, actions: Tensor) -> TensorStep:
        # a new tensor: the trainer writes the next actions into this one's memory
        given = actions.to(torch.int32) if not actions.is_floating_point() else actions.clone()
        if self.renewed_every > 1 and self.age == 0:
            self.state = self._renew(self.state)
        self.state, *out = self._step(self.state, self.jax.dlpack.from_dlpack(given))
        self.age = (self.age + 1) % self.renewed_every
        obs, reward, terminated, *limits = (from_dlpack(x) for x in out)
        if not limits:
            return TensorStep(obs, reward, terminated.bool())
        truncated, final = limits
        return TensorStep(obs, reward, terminated.bool(), truncated.bool(), final)

    def state_dict(self) -> dict[str, Tensor]:
        """The leaves of the state, in JAX's order; unsigned integers as the signed ones of the same bits."""
        if self.state is None:
            self.reset(0)
        leaves = [np.asarray(leaf) for leaf in self.jax.tree.leaves(self._plain(self.state))]
        return {f"{i}": torch.from_numpy(np.array(signed(leaf))) for i, leaf in enumerate(leaves)}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        leaves, tree = self.jax.tree.flatten(self.jax.eval_shape(self._plain, self._types))
        if len(leaves) != len(state) or any(x.shape != tuple(state[f"{i}"].shape) for i, x in enumerate(leaves)):
            raise ValueError("the saved state is that of another environment, or of another version of it")
        saved = [state[f"{i}"].cpu().numpy().view(leaf.dtype) for i, leaf in enumerate(leaves)]
        plain = self.jax.tree.unflatten(tree, [self.jax.device_put(x, self.jax_device) for x in saved])
        self.state = self._with_keys(plain)
        self.age = int(self.state[2].age) if self.state[2] else 0

    # --- pure functions of JAX ---------------------------------------------------------------------

    def _start(self, key: Any) -> tuple[Any, Tree]:
        obs, state = self._new_state(key)
        return self._vector(obs), self.jax.tree.map(self._as_type, state, self._types)

    def _new_state(self, key: Any) -> tuple[Any, Tree]:
        """Observation, and key, state of the copies and starts, as an episode's start has their types."""
        keys = self.jax.random.split(key, self.num_envs + 1)
        obs, own = self._new_episodes(keys[1:])
        if self.renewed_every == 1:
            return obs, (keys[0], own, ())
        # until they are renewed, before the first step
        some_obs, some = self.jax.tree.map(lambda x: x[: self.num_starts], (obs, own))
        return obs, (keys[0], own, Pool(some_obs, some, self.jax.numpy.int32(0), self.jax.numpy.int32(0)))

    def _new_episodes(self, keys: Any) -> tuple[Any, Tree]:
        obs, own = self.jax.vmap(self.suite.reset)(keys)
        return obs, own

    def _renewed(self, state: Tree) -> Tree:
        """The state with new starts."""
        key, own, _ = state
        key, starting = self.jax.random.split(key)
        new = self._new_episodes(self.jax.random.split(starting, self.num_starts))
        pool = Pool(*new, self.jax.numpy.int32(0), self.jax.numpy.int32(0))
        return self.jax.tree.map(self._as_type, (key, own, pool), self._types)

    @functools.cached_property
    def _types(self) -> Tree:
        """Shapes and types of the state after a step. Some environments start from other types than they step to."""
        state = self.jax.eval_shape(self._new_state, self._key(0))[1]
        space = self.action_space
        kind = np.int32 if isinstance(space, spaces.Discrete) else np.float32
        actions = self.jax.ShapeDtypeStruct((self.num_envs, *(space.shape or ())), kind)
        return self.jax.eval_shape(self._advance, state, actions)[0]

    def _advance(self, state: Tree, actions: Any) -> tuple[Tree, Any, Any, Any] | tuple[Tree, Any, Any, Any, Any, Any]:
        """All copies one step on; those that end continue with a start. State, observation, reward, terminated, and
        where there are time limits, truncated and the final observation."""
        jax, jnp = self.jax, self.jax.numpy
        key, own, pool = state
        key, stepping, starting = jax.random.split(key, 3)
        keys = jax.random.split(stepping, self.num_envs)
        obs, own, reward, terminated, truncated = jax.vmap(self.suite.step)(keys, own, actions)
        ended = jnp.logical_or(terminated, truncated)
        new_obs, new, used, age = pool or Pool(*self._new_episodes(jax.random.split(starting, self.num_starts)), 0, 0)
        which = (
            used + jnp.maximum(jnp.cumsum(ended) - 1, 0)
        ) % self.num_starts  # the k-th copy that ends takes start k
        if pool:
            pool = pool._replace(used=used + jnp.sum(ended), age=(age + 1) % self.renewed_every)

        def chosen(fresh: Any, old: Any) -> Any:
            fresh = self._as_type(fresh, old)
            return jnp.where(ended.reshape(-1, *(1,) * (old.ndim - 1)), fresh[which], old)

        final = self._vector(obs)
        state = key, jax.tree.map(chosen, new, own), pool
        state = jax.tree.map(self._as_type, state, state)
        outputs = state, chosen(self._vector(new_obs), final), reward.astype(jnp.float32), terminated.astype(jnp.uint8)
        return (*outputs, truncated.astype(jnp.uint8), final) if self.suite.truncates else outputs

    def _vector(self, obs: Any) -> Any:
        """[B, X] float32."""
        if self.choices:
            obs = self.jax.nn.one_hot(obs, self.choices)
        if self.suite.cell:
            parts = [self.jax.nn.one_hot(obs[..., i], count) for i, count in enumerate(self.suite.cell)]
            obs = self.jax.numpy.concatenate(parts, axis=-1)
        return obs.reshape(len(obs), -1).astype(self.jax.numpy.float32)

    def _key(self, seed: int) -> Any:
        """Both halves of a seed of 63 bits count."""
        return self.jax.random.fold_in(self.jax.random.PRNGKey(seed & 0xFFFFFFFF), seed >> 32)

    def _as_type(self, leaf: Any, like: Any) -> Any:
        """The leaf in exactly the type of `like`: where JAX may still widen a type, it would compile once more."""
        return leaf if self._is_key(leaf) else self.jax.lax.convert_element_type(leaf, like.dtype)

    def _is_key(self, leaf: Any) -> bool:
        return bool(self.jax.dtypes.issubdtype(leaf.dtype, self.jax.dtypes.prng_key))

    def _plain(self, tree: Tree) -> Tree:
        """Typed keys as the integers that they are."""
        return self.jax.tree.map(lambda x: self.jax.random.key_data(x) if self._is_key(x) else x, tree)

    def _with_keys(self, plain: Tree) -> Tree:
        """The inverse of `_plain`."""
        wrap = self.jax.random.wrap_key_data
        return self.jax.tree.map(lambda kind, x: wrap(x) if self._is_key(kind) else x, self._types, plain)


def jax_device(device: torch.device) -> Any:
    """JAX's name for a device of PyTorch."""
    import jax

    if device.type == "cpu":
        return jax.devices("cpu")[0]
    try:
        return jax.devices("gpu")[device.index or 0]
    except RuntimeError as error:
        raise UserError('JAX finds no GPU here: pip install "jax[cuda12]", or train with --device cpu') from error


def gym_space(space: Any) -> spaces.Space[Any]:
    """An action space of gymnax or NAVIX as one of Gymnasium."""
    kind = type(space).__name__
    if kind == "Discrete" and tuple(space.shape) == ():
        return spaces.Discrete(int(space.n))
    if kind in ("Box", "Continuous"):
        low, high = (space.low, space.high) if kind == "Box" else (space.minimum, space.maximum)
        low, high = (np.broadcast_to(np.asarray(bound, np.float32), space.shape) for bound in (low, high))
        return spaces.Box(low, high, dtype=np.float32)
    raise UserError(f"actions of the kind {kind} are not supported; a Discrete or a Box of JAX environments is")


def signed(array: np.ndarray) -> np.ndarray:
    """Unsigned integers wider than a byte as signed ones: checkpoints have no others."""
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        return array.view(f"i{array.dtype.itemsize}")
    return array
