"""The Triton kernels of rnd.models.convolutions: convolution with activation, and its gradients, as implicit GEMMs.

Images are channels last, [B, H, W, C], so that a row of a patch is contiguous. Every kernel computes tiles of a matrix
product whose left operand is read from the image itself, patch by patch. Operands have 16 bits, accumulators 32.

Legend: B images, M output pixels of all images, K values of a patch, C input channels, N output channels.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def saturated(x, LIMIT: tl.constexpr):
    """Values beyond the largest number of the type become that number; NaN stays NaN."""
    x = tl.where(x > LIMIT, LIMIT, x)
    return tl.where(x < -LIMIT, -LIMIT, x)


@triton.jit
def space_to_depth(x, y, C: tl.constexpr, SIDE: tl.constexpr, BLOCK: tl.constexpr, COLUMNS: tl.constexpr):
    """Blocks of BLOCK x BLOCK pixels of [B, C, SIDE, SIDE] as channels: one row of blocks of one image. COLUMNS is the
    next power of two from their number."""
    BLOCKS: tl.constexpr = SIDE // BLOCK
    CHANNELS: tl.constexpr = C * BLOCK * BLOCK
    image, row = (tl.program_id(0) // BLOCKS).to(tl.int64), tl.program_id(0) % BLOCKS
    column, channel = tl.arange(0, COLUMNS)[:, None], tl.arange(0, CHANNELS)[None, :]
    frame, pixel = channel // (BLOCK * BLOCK), channel % (BLOCK * BLOCK)
    start = image * (C * SIDE * SIDE) + row * (BLOCK * SIDE)
    source = frame * (SIDE * SIDE) + pixel // BLOCK * SIDE + column * BLOCK + pixel % BLOCK
    value = tl.load(x + start + source, mask=column < BLOCKS, other=0)
    start = image * (BLOCKS * BLOCKS * CHANNELS) + row * (BLOCKS * CHANNELS)
    out = value.to(tl.float32).to(y.dtype.element_ty)
    tl.store(y + start + column * CHANNELS + channel, out, mask=column < BLOCKS)


@triton.jit
def patch_starts(m, H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
                 STRIDE: tl.constexpr):  # fmt: skip
    """Where the patches of output pixels begin in the images."""
    pixel = m % (OH * OW)
    return (m // (OH * OW)).to(tl.int64) * (H * W * C) + (pixel // OW * W + pixel % OW) * (STRIDE * C)


@triton.jit
def forward(
    x, weight, bias, y, pixels, scale, slope,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, N: tl.constexpr,
    KERNEL: tl.constexpr, STRIDE: tl.constexpr, LIMIT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """y [M, N] = leaky_relu(scale * patches [M, K] @ weight [N, K].T + bias)."""
    ROW: tl.constexpr = KERNEL * C
    K: tl.constexpr = KERNEL * ROW
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = (m < pixels)[:, None]
    starts = patch_starts(m, H, W, C, OH, OW, STRIDE)[:, None]
    n, k = tl.arange(0, N), tl.arange(0, BLOCK_K)
    acc = tl.zeros([BLOCK_M, N], tl.float32)
    for done in range(0, K, BLOCK_K):
        # the compiler cannot see that this is a multiple of 16, and would load value by value
        within = tl.multiple_of(done // ROW * (W * C) + done % ROW, 16)
        patch = tl.load(x + starts + within + k[None, :], mask=inside, other=0)
        tile = tl.load(weight + n[None, :] * K + done + k[:, None])
        acc = tl.dot(patch, tile, acc)
    out = acc * scale + tl.load(bias + n)[None, :]
    out = saturated(tl.where(out > 0, out, out * slope), LIMIT)
    tl.store(y + m.to(tl.int64)[:, None] * N + n[None, :], out.to(y.dtype.element_ty), mask=inside)


@triton.jit
def input_gradient(
    grad, weight, x, grad_x, blocks, slope,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, N: tl.constexpr,
    KERNEL: tl.constexpr, STRIDE: tl.constexpr, LIMIT: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Gradient of the input, times the derivative of the leaky ReLU whose result the input is.

    One row per block of STRIDE x STRIDE input pixels: the same outputs read all pixels of a block, each with other taps
    of the kernel. `weight` is [pixels of a block and C, taps, N], `blocks` the number of blocks.
    """
    TAPS: tl.constexpr = KERNEL // STRIDE
    ROWS: tl.constexpr = H // STRIDE
    COLUMNS: tl.constexpr = W // STRIDE
    CHANNELS: tl.constexpr = STRIDE * STRIDE * C
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    c, n = tl.arange(0, CHANNELS), tl.arange(0, N)
    inside, image, block = m < blocks, (m // (ROWS * COLUMNS)).to(tl.int64), m % (ROWS * COLUMNS)
    row, column = block // COLUMNS, block % COLUMNS
    acc = tl.zeros([BLOCK_M, CHANNELS], tl.float32)
    for tap in range(TAPS * TAPS):
        oy, ox = row - tap // TAPS, column - tap % TAPS
        reached = inside & (oy >= 0) & (oy < OH) & (ox >= 0) & (ox < OW)
        starts = image * (OH * OW * N) + (oy * OW + ox) * N
        tile = tl.load(grad + starts[:, None] + n[None, :], mask=reached[:, None], other=0)
        acc = tl.dot(tile, tl.load(weight + c[None, :] * (TAPS * TAPS * N) + tap * N + n[:, None]), acc)
    starts = image * (H * W * C) + (row * W + column) * (STRIDE * C)
    offsets = starts[:, None] + (c // (STRIDE * C) * (W * C) + c % (STRIDE * C))[None, :]
    active = tl.load(x + offsets, mask=inside[:, None], other=0) > 0
    out = saturated(tl.where(active, acc, acc * slope), LIMIT)
    tl.store(grad_x + offsets, out.to(grad_x.dtype.element_ty), mask=inside[:, None])


@triton.jit
def weight_gradient(
    x, grad, grad_weight, grad_bias, pixels,
    H: tl.constexpr, W: tl.constexpr, C: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, N: tl.constexpr,
    KERNEL: tl.constexpr, STRIDE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
    STEPS: tl.constexpr,
):  # fmt: skip
    """patches [M, K].T @ grad [M, N], and the sum of grad over M: of one split of the pixels each."""
    ROW: tl.constexpr = KERNEL * C
    K: tl.constexpr = KERNEL * ROW
    split = tl.program_id(1)
    k, n = tl.program_id(0) * BLOCK_K + tl.arange(0, BLOCK_K), tl.arange(0, N)
    within = (k // ROW * (W * C) + k % ROW)[None, :]
    acc, total = tl.zeros([BLOCK_K, N], tl.float32), tl.zeros([BLOCK_M, N], tl.float32)
    for step in range(STEPS):
        m = (split * STEPS + step) * BLOCK_M + tl.arange(0, BLOCK_M)
        inside = (m < pixels)[:, None]
        starts = patch_starts(m, H, W, C, OH, OW, STRIDE)[:, None]
        patch = tl.load(x + starts + within, mask=inside, other=0)
        tile = tl.load(grad + m.to(tl.int64)[:, None] * N + n[None, :], mask=inside, other=0)
        acc = tl.dot(tl.trans(patch), tile, acc)
        total += tile.to(tl.float32)
    tl.store(grad_weight + split * (K * N) + k[:, None] * N + n[None, :], acc)
    if tl.program_id(0) == 0:
        tl.store(grad_bias + split * N + n, tl.sum(total, 0))
