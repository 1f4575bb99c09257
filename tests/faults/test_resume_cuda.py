"""A run goes on on a GPU: captured graphs, convolution weights in another memory order, generators on the device.

Bit for bit is promised on the CPU alone; here the rows after a resume are those of the run that was not stopped to
within what the order of a GPU's sums changes.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from rnd.bench.synthetic import SyntheticAtari
from rnd.checkpoint import checkpoint
from rnd.config import Config
from rnd.config.presets import preset
from rnd.training.trainer import Trainer

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


class Saved(SyntheticAtari):
    """Synthetic frames that can be saved."""

    def _save(self):
        state = self.random.bit_generator.state["state"]
        words = [state[name] >> shift & 2**64 - 1 for name in ("state", "inc") for shift in (0, 64)]
        return {"random": np.array(words, np.uint64).view(np.int64), "step": np.array([self._step])}

    def _load(self, state):
        low, high, inc_low, inc_high = (int(word) for word in state["random"].view(np.uint64))
        full = self.random.bit_generator.state
        full["state"] = {"state": high << 64 | low, "inc": inc_high << 64 | inc_low}
        self.random.bit_generator.state = full
        self._step = int(state["step"][0])


def small(device: str, **changes) -> Config:
    config = preset("montezuma")
    env = dataclasses.replace(config.env, num_envs=8)
    config = dataclasses.replace(config, env=env, rollout_steps=16, device=device, **changes)
    return dataclasses.replace(config, frames=6 * config.frames_per_rollout)


def resumed_and_whole(config: Config, folder) -> tuple[list[dict], list[dict]]:
    """Rows 4 to 6 of a run that is saved and loaded after its third iteration, and of the same run left alone."""
    whole = Trainer(config, Saved(config.env.num_envs))
    whole.start()
    rows = whole.train()
    for _ in range(3):
        next(rows)
    path = checkpoint.write(folder, "000000003", {"iteration": 3, "score": None}, whole.state_dict())
    again = Trainer(config, Saved(config.env.num_envs))
    assert again.load_state_dict(checkpoint.read(path).state)
    expected = list(rows)
    return list(again.train()), expected


@cuda
@pytest.mark.parametrize("changes", [{"policy": "gru"}, {"policy": "cnn", "fast": False}])
def test_resumed_on_a_gpu(changes, tmp_path):
    resumed, expected = resumed_and_whole(small("cuda", **changes), tmp_path)
    for row, other in zip(resumed, expected, strict=True):
        for name, value in other.items():
            if value is not None:
                assert row[name] == pytest.approx(value, rel=2e-2, abs=1e-4), (name, row["iteration"])


def test_the_same_on_the_cpu_to_the_bit(tmp_path):
    resumed, expected = resumed_and_whole(small("cpu", policy="gru", epochs=1), tmp_path)
    assert resumed == expected
