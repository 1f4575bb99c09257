"""Batches of samples, arrays or tensors of any shape, as a bonus reads them.

Legend: B samples, X the shape of one sample.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import Tensor

from rnd.envs.spaces import ObservationEncoder
from rnd.foundation.errors import UserError


class NoveltyError(UserError, ValueError):
    """Wrong input; a ValueError too, as scikit-learn's tools expect."""


@lru_cache(16)
def encoder(shape: tuple[int, ...], is_bytes: bool) -> ObservationEncoder:
    """What decides whether samples are images, and makes vectors or grey frames of them."""
    low, high = (0.0, 255.0) if is_bytes else (0.0, 1.0) if len(shape) > 1 else (-math.inf, math.inf)
    dtype: Any = np.uint8 if is_bytes else np.float32
    return ObservationEncoder(Box(low, high, shape, dtype), "the data")


def checked(X: Any) -> Tensor:
    """Samples [B, X] as a tensor of float32 or uint8, all finite."""
    if hasattr(X, "toarray"):
        raise TypeError("X is sparse; Novelty reads dense data only: X.toarray()")
    if not isinstance(X, Tensor):
        X = np.asarray(X)
        if X.dtype.kind == "c":
            raise NoveltyError(f"Complex data not supported: X has the type {X.dtype}")
        X = torch.from_numpy(np.array(X, np.uint8 if X.dtype == np.uint8 else np.float32, order="C"))
    values: Tensor = X.detach() if X.dtype == torch.uint8 else X.detach().float()
    if values.dim() < 2:
        raise NoveltyError(f"Expected 2D array, got {values.dim()}D array instead. Reshape your data: X.reshape(1, -1)")
    if values.numel() == 0:
        what = f"0 {'feature' if len(values) else 'sample'}(s) (shape={tuple(values.shape)})"
        raise NoveltyError(f"Found array with {what} while a minimum of 1 is required.")
    if not bool(torch.isfinite(values).all()):
        raise NoveltyError("Input X contains NaN or infinity (or a value too large for float32): remove those samples")
    return values
