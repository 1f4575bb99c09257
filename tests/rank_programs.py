"""What two ranks do in the tests of rnd.distributed: runs in processes of its own, and returns what it saw."""

from __future__ import annotations

import os
import pickle
import socket
from dataclasses import replace
from pathlib import Path
from unittest import mock

import torch
import torch.multiprocessing as mp

from rnd import envs
from rnd.bonus.count import Count
from rnd.config import BonusOptions, Config
from rnd.config.presets import small
from rnd.data.transitions import Rollout
from rnd.distributed import Ranks, process_group
from rnd.envs.spec import ActionSpec, ObservationSpec
from rnd.foundation.errors import UserError
from rnd.models.policy.mlp import WidthOptions
from rnd.training.ppo import NonFiniteLossError
from rnd.training.trainer import Trainer

WORLD, N, T = 2, 8, 8


def config_of(num_envs: int, **changes) -> Config:
    """CartPole, narrow networks, half of the samples for the predictor."""
    config = small("CartPole-v1")
    return replace(
        config,
        env=replace(config.env, num_envs=num_envs),
        bonus_options=BonusOptions(features=16, hidden=16, keep=0.5, random_steps=8),
        rollout_steps=T,
        policy_options=WidthOptions(16),
        device="cpu",
        frames=10**6,
        **changes,
    )


def one_step(num_envs: int) -> Config:
    """One optimiser step per iteration, so that its gradient is still there afterwards."""
    return config_of(num_envs, epochs=1, minibatches=1)


def rows_of(rollout: Rollout, rows: slice) -> Rollout:
    """Some environments of a rollout."""
    state = rollout.state_dict()
    for group in ("transitions", "tensors"):
        state[group] = {k: x[rows] if k == "hidden_NH" else x[:, rows] for k, x in state[group].items()}
    return Rollout.from_state(state, torch.device("cpu"))


def learn_once(trainer: Trainer, rollout: Rollout, draws: torch.Tensor) -> dict:
    """One whole iteration on given data, and everything that it changed."""
    with mock.patch("torch.rand", return_value=draws):
        learned = trainer.learn(rollout)
    return {
        "learned": learned,
        "observations": [x.clone() for x in trainer.bonus.whiten.moments.buffers()],
        "returns": [x.clone() for x in trainer.scaler.moments.buffers()],
        "gradients": [p.grad.clone() for p in trainer.learner.parameters],
        "weights": [p.detach().clone() for p in trainer.learner.parameters],
    }


def same_data(ranks: Ranks, given: dict) -> dict:
    config = ranks.config_of_new_run(one_step(N // WORLD))
    trainer = Trainer(config, envs.make(config), ranks)
    rows = slice(config.env.first, config.env.first + config.env.num_envs)
    rollout = rows_of(Rollout.from_state(given["rollout"], torch.device("cpu")), rows)
    return learn_once(trainer, rollout, given["draws"][:, :, rows])


def fifty_updates(ranks: Ranks) -> dict:
    """What must be equal on the ranks, and what must not."""
    config = ranks.config_of_new_run(replace(config_of(N // WORLD), epochs=1, minibatches=1))
    trainer = Trainer(config, envs.make(config), ranks)
    first = trainer.env.reset().clone()
    for _ in trainer.random_start():
        pass
    trainer.start()
    seen = []
    training = trainer.train()
    for _ in range(50):
        next(training)
        parts = [*trainer.policy.state_dict().values(), *trainer.bonus.state_dict().values()]
        parts += [*trainer.scaler.moments.buffers()]
        seen.append(b"".join(x.numpy().tobytes() for x in parts))
    return {
        "seen": seen,
        "first": first,
        "noise": trainer.collector.buffer.noise.clone(),
        "episodes": trainer.episodes.count,
    }


def a_bad_reward(ranks: Ranks) -> dict:
    """Only rank 1 has a NaN."""
    config = ranks.config_of_new_run(config_of(N // WORLD))
    trainer = Trainer(config, envs.make(config), ranks)
    trainer.start()
    rollout = trainer.collector.collect()
    if ranks.rank == 1:
        rollout.rewards_ext_TN[0, 0] = float("nan")
    before = [p.detach().clone() for p in trainer.learner.parameters]
    try:
        trainer.learn(rollout)
    except NonFiniteLossError as error:
        same = all(torch.equal(a, b) for a, b in zip(before, trainer.learner.parameters, strict=True))
        return {"raised": str(error), "untouched": same}
    return {"raised": None}


def counts(ranks: Ranks) -> torch.Tensor:
    bonus = Count(ObservationSpec("vector", (1,)), ActionSpec("discrete", (2,)), Count.Options())
    bonus.update_statistics(torch.tensor([[1.0], [float(ranks.rank)]]), ranks)
    return torch.stack(
        [bonus.counts_RS.gather(1, slots).amin(0) for slots in bonus.slots(torch.tensor([[0.0], [1.0]]))]
    )


def collectives(ranks: Ranks) -> dict:
    def fail() -> None:
        raise UserError("no such thing")

    try:
        ranks.on_rank0(fail)
        problem = None
    except UserError as error:
        problem = (str(error), error.reported)
    return {
        "all_max": ranks.all_max(ranks.rank, -ranks.rank),
        "gather": ranks.gather({"rank": ranks.rank, "x": torch.ones(1) * ranks.rank}),
        "scatter": ranks.scatter(["a", "b"] if ranks.is_rank0 else []),
        "on_rank0": ranks.on_rank0(lambda: ranks.rank + 10),
        "problem": problem,
    }


def program(rank: int, port: int, given: dict, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with process_group() as ranks:
        ranks = ranks.on("cpu")
        results = {
            "same_data": same_data(ranks, given),
            "fifty": fifty_updates(ranks),
            "bad": a_bad_reward(ranks),
            "counts": counts(ranks),
            "collectives": collectives(ranks),
        }
    Path(folder, str(rank)).write_bytes(pickle.dumps(results))


def run(given: dict, folder: Path) -> list[dict]:
    """Both ranks' results."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.start_processes(program, (port, given, str(folder)), WORLD, start_method="spawn")
    return [pickle.loads((folder / str(rank)).read_bytes()) for rank in range(WORLD)]
