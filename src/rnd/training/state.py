"""The state of a run: what all ranks share, what each rank has alone, and how that is redistributed to other ranks."""

from __future__ import annotations

from typing import Any, Protocol

from torch import nn

from rnd.bonus.base import BonusModule
from rnd.device.generators import Generators
from rnd.distributed import Ranks
from rnd.envs.interface import VectorEnv
from rnd.foundation.errors import RunError
from rnd.metrics.episodes import EpisodeStats
from rnd.models.policy.base import Policy
from rnd.training.collector import Collector
from rnd.training.ppo import Learner


class Stateful(Protocol):
    """The attributes of a trainer that have state."""

    iteration: int
    policy: Policy
    bonus: BonusModule
    learner: Learner
    episodes: EpisodeStats
    collector: Collector
    env: VectorEnv
    generators: Generators
    ranks: Ranks

    def env_modules(self) -> dict[str, nn.Module]: ...

    def modules(self) -> dict[str, nn.Module]: ...


def shared_parts(trainer: Stateful) -> dict[str, Any]:
    """What is the same on all ranks, by its name in the state."""
    return {
        "policy": trainer.policy,
        "bonus": trainer.bonus,
        "optimizer": trainer.learner,
        "episodes": trainer.episodes,
    }


def own_parts(trainer: Stateful) -> dict[str, Any]:
    """What each rank has its own of, beside the generators, by its name in the state."""
    return {**trainer.env_modules(), "collector": trainer.collector, "env": trainer.env}


def save(trainer: Stateful) -> dict[str, Any]:
    """Everything that the next iteration depends on. Nested dicts of tensors, arrays and JSON.

    All ranks call this together. That of rank 0 holds the states of the others, and is the one to be written.
    """
    trainer.collector.wait()  # a rollout in another thread advances the environments and the generators
    own = {name: part.state_dict() for name, part in own_parts(trainer).items()}
    own["generators"] = trainer.generators.state_dict()
    shared = {name: part.state_dict() for name, part in shared_parts(trainer).items()}
    return {"iteration": trainer.iteration, **shared, **own, "other_ranks": trainer.ranks.gather(own)[1:]}


def load(trainer: Stateful, saved: dict[str, Any]) -> bool:
    """Restore rank 0's `saved`. Returns False where the random draws will differ."""
    shared, states = trainer.ranks.on_rank0(lambda: shared_entries(trainer, saved)), []
    if trainer.ranks.is_rank0:
        own_names = (*own_parts(trainer), "generators")
        states = reshard(trainer, [{name: saved[name] for name in own_names}, *saved.get("other_ranks", [])])
    own = trainer.ranks.scatter(states)
    trainer.iteration = int(shared["iteration"])
    for name, part in shared_parts(trainer).items():
        part.load_state_dict(shared[name])
    for name, part in own_parts(trainer).items():
        part.load_state_dict(own[name])
    if own["generators"] is None:
        trainer.generators.seed(trainer.iteration)
        return False
    return trainer.generators.load_state_dict(own["generators"])


def reshard(trainer: Stateful, states: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One state per rank from the states of another number of ranks. Generators cannot be split: they are seeded
    anew."""
    world = trainer.ranks.world
    if len(states) == world:
        return states
    owners = own_parts(trainer).items()
    split = {name: owner.reshard([state[name] for state in states], world) for name, owner in owners}
    return [{name: found[rank] for name, found in split.items()} | {"generators": None} for rank in range(world)]


def shared_entries(trainer: Stateful, saved: dict[str, Any]) -> dict[str, Any]:
    for name, module in trainer.modules().items():
        missing = module.state_dict().keys() - saved.get(name, {}).keys()
        if missing:
            raise RunError(f"the checkpoint lacks the state of {name}: {', '.join(sorted(missing))}")
    return {name: saved[name] for name in ("iteration", *shared_parts(trainer))}
