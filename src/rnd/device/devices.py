"""Which device a run is computed on."""

from __future__ import annotations

import torch

from rnd.config import Config
from rnd.distributed import SINGLE_PROCESS, Ranks
from rnd.foundation.errors import UserError, nearest


def find_device(name: str) -> str:
    """The device that a config's `device` stands for: CUDA for "auto" where it is found, else the CPU."""
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name.startswith("cuda") and not found:
        raise UserError(f"--device {name}: PyTorch finds no CUDA device here; nearest: --device cpu")
    known = ["auto", "cpu", *(["cuda"] if found else []), *(f"cuda:{i}" for i in range(found))]
    if name not in known:
        raise UserError(f"unknown device {name!r}; {nearest(name.replace('gpu', 'cuda'), {*known, 'cuda'})}")
    return ("cuda" if found else "cpu") if name == "auto" else name


def set_device(device: torch.device) -> None:
    """Make a GPU the current one in this thread."""
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)


def resolve_device(config: Config, ranks: Ranks = SINGLE_PROCESS) -> torch.device:
    """CUDA where it is found, else the CPU; one GPU per rank. Sets PyTorch's global switches for it."""
    name = find_device(config.device)
    if name.startswith("cuda"):
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = config.precision != "float32"
        torch.backends.cudnn.benchmark = config.fast  # shapes never change: search for the best kernels once
    device = torch.device(f"cuda:{ranks.local_rank}" if name == "cuda" and ranks.world > 1 else name)
    set_device(device)
    return device
