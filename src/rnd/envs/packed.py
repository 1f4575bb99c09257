"""Mixed observations, images and a vector in one row of bytes, taken apart and joined as tensors.

Legend: P pixels of all images of an observation, V components of its vector. A row has P + 4 V bytes. Once it is
whitened it has P + V float32 numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor


def split(rows: Tensor, pixels: int) -> tuple[Tensor, Tensor]:
    """Pixels [..., P] and vectors [..., V] of rows of bytes, or of whitened rows."""
    image, vector = rows[..., :pixels], rows[..., pixels:]
    return image, vector.contiguous().view(torch.float32) if rows.dtype == torch.uint8 else vector


def join(image: Tensor, vector: Tensor) -> Tensor:
    """Rows of bytes [..., P + 4 V] from pixels [..., P] (uint8) and vectors [..., V] (float32)."""
    return torch.cat([image, vector.contiguous().view(torch.uint8)], dim=-1)
