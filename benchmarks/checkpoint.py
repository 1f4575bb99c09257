"""What a checkpoint costs at the paper's configuration: 128 environments, CNN, RND, Adam's moments filled.

    python benchmarks/checkpoint.py [--game montezuma] [--saves 10] [--out FOLDER]

Saving stops training for as long as it takes, so the stall is seconds of a save / seconds between saves.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import closing
from pathlib import Path

import torch

from rnd import envs
from rnd.checkpoint import checkpoint
from rnd.checkpoint.checkpointer import Checkpointer
from rnd.checkpoint.folder import RunFolder
from rnd.config import WriterOptions
from rnd.config.presets import preset
from rnd.metrics.metrics import CsvWriter, RunInfo, Writers
from rnd.metrics.tensorboard import TensorBoardWriter
from rnd.training.trainer import Trainer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="montezuma")
    parser.add_argument("--saves", type=int, default=10)
    parser.add_argument("--out", default=None, help="where to write; default: a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.out) as out, closing(envs.make(preset(options.game))) as env:
        trainer = prepared(preset(options.game), env)
        writers = Writers(
            [CsvWriter(Path(out)), TensorBoardWriter(RunInfo(Path(out), trainer.config, 0), WriterOptions())]
        )
        checkpointer = Checkpointer(trainer, RunFolder(Path(out)), writers, None)
        seconds = []
        for trainer.iteration in range(1, options.saves + 1):
            begun = time.monotonic()
            checkpointer.save({})
            seconds.append(time.monotonic() - begun)
        size = sum(file.stat().st_size for file in checkpoint.found(checkpointer.folder.checkpoints)[-1].iterdir())
        writers.close()
    interval = 60 * trainer.config.checkpoint.every_minutes
    middle, worst = statistics.median(seconds), max(seconds)
    print(f"{options.game}, {trainer.config.env.num_envs} environments ({env.spec.backend}), {trainer.device}")
    print(
        f"checkpoint {size / 1e6:.1f} MB; a save takes {middle:.2f} s (median of {len(seconds)}, worst {worst:.2f} s)"
    )
    print(f"stall at the default interval of {interval:g} s: {middle / interval:.3%} (worst {worst / interval:.3%})")


def prepared(config, env) -> Trainer:
    """A trainer with all the state that it has in the middle of a run."""
    trainer = Trainer(config, env)
    trainer.start()
    for p in trainer.learner.parameters:
        p.grad = torch.zeros_like(p)
    trainer.learner.optimizer.step()
    return trainer


if __name__ == "__main__":
    main()
