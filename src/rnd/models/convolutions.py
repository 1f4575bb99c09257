"""The three convolutions of the Atari torso on a GPU: one fused kernel each per direction (convolution_kernels.py).

A library computes them with passes over memory in between: uint8 to float, strides to channels, bias, activation,
flattening, and all of it again backwards. Here that happens where a matrix product is read or written. Operands have 16
bits and are accumulated in 32:

- float16 where PyTorch would use TF32. Both have a mantissa of 10 bits. float16 has a smaller range, so gradients are
  scaled: multiplied by a power of two that brings the largest to `MAX_GRADIENT`, and the results divided by it.
- bfloat16 under autocast (`--precision bf16`).

Images and feature maps are channels last here. Legend: B images, C input channels, N output channels, H W height and
width, K = kernel * kernel * C values of a patch.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

BLOCK = 4
"""The first convolution's stride becomes channels (space to depth): 84 x 84 pixels are 21 x 21 blocks, and its kernel
of 8 pixels is one of 2 blocks."""
STRIDES = (1, 2, 1)
"""Strides of the three convolutions, the first one after space to depth."""
MAX_GRADIENT = 2.0**6
"""After scaling. float16 ends at 2^16, so there is room for gradients that grow on their way back. Numbers have all
their bits down to 2^-14."""
PROGRAMS = 264
"""Splits of a weight gradient: two per multiprocessor of an H200. Constant, so that sums have one order everywhere."""
SMALL = 65_536
"""Output pixels below which small tiles keep more multiprocessors busy: policy steps."""


def fused(device: torch.device) -> bool:
    """Whether the kernels can run there: on a GPU with bfloat16 tensor cores, with Triton, which PyTorch brings, and
    with what Triton builds its launchers with: a C compiler and Python's headers."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0):
        return False
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    headers = Path(sysconfig.get_path("include"), "Python.h").exists()
    return bool(compiler) and headers and importlib.util.find_spec("triton") is not None


def operand_dtype() -> torch.dtype | None:
    """The 16-bit type of the operands; None where float32 is asked for (`--precision float32`)."""
    if torch.is_autocast_enabled("cuda"):
        return torch.get_autocast_dtype("cuda")
    return torch.float16 if torch.backends.cudnn.allow_tf32 else None


def feature_maps(x: Tensor, weights: list[Tensor], biases: list[Tensor], slope: float, dtype: torch.dtype) -> Tensor:
    """Output [B, N, H, W] of three convolutions with leaky ReLUs, from images [B, C, 84, 84]: float, or uint8, which is
    divided by 255. Gradients flow to weights [N, C, kernel, kernel] and biases, not to images."""
    scale = 1 / 255 if x.dtype == torch.uint8 else 1.0
    blocks = space_to_depth(x if x.dtype == torch.uint8 else x.to(dtype), dtype)
    channels_last = [w.movedim(1, -1).contiguous() for w in (F.pixel_unshuffle(weights[0], BLOCK), *weights[1:])]
    operands = [w.detach().to(dtype) for w in channels_last]
    maps: Tensor = torso(blocks, operands, channels_last, biases, scale, slope)[-1]
    return maps.movedim(-1, 1)


@torch.library.custom_op("rnd::space_to_depth", mutates_args=())
def space_to_depth(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Images [B, C, H, W] as [B, H / 4, W / 4, 16 C], in the order of `pixel_unshuffle`."""
    from rnd.models import convolution_kernels as kernels

    x = x.contiguous()
    y = torch.empty(blocks_shape(x), dtype=dtype, device=x.device)
    blocks = y.shape[1]
    columns = 1 << (blocks - 1).bit_length()
    with torch.cuda.device_of(x):  # Triton launches on the current device
        kernels.space_to_depth[(len(x) * blocks,)](x, y, x.shape[1], x.shape[2], BLOCK, columns, num_warps=4)
    return y


@torch.library.custom_op("rnd::torso", mutates_args=())
def torso(
    x: Tensor, operands: list[Tensor], weights: list[Tensor], biases: list[Tensor], scale: float, slope: float
) -> list[Tensor]:
    """The activations of the convolutions, [B, H, W, N] each: of the operands' type, the last one in float32.

    `operands` are the `weights` [N, kernel, kernel, C] rounded to 16 bits; gradients flow to `weights`.
    """
    activations: list[Tensor] = []
    with torch.cuda.device_of(x):
        for weight, bias, stride in zip(operands, biases, STRIDES, strict=True):
            last = len(activations) == len(STRIDES) - 1
            x = convolution(x, weight, bias, stride, scale, slope, torch.float32 if last else weight.dtype)
            activations.append(x)
            scale = 1.0
    return activations


@torch.library.custom_op("rnd::torso_gradients", mutates_args=())
def torso_gradients(grad: Tensor, inputs: list[Tensor], operands: list[Tensor], slope: float) -> list[Tensor]:
    """Gradients of the weights, [splits, K, N] each, and of the biases, [splits, N] each, to be summed over splits.

    From the gradient of the last convolution before its activation, and the inputs of all convolutions.
    """
    grad = grad.contiguous()
    weights: list[Tensor] = []
    biases: list[Tensor] = []
    with torch.cuda.device_of(grad):
        for x, weight, stride in zip(inputs[::-1], operands[::-1], STRIDES[::-1], strict=True):
            grad_weight, grad_bias = weight_gradient(x, grad, weight, stride)
            weights.insert(0, grad_weight)
            biases.insert(0, grad_bias)
            if len(weights) < len(STRIDES):
                grad = input_gradient(grad, weight, x, stride, slope)
    return weights + biases


class Geometry(NamedTuple):
    """Sizes of a convolution, as the kernels take them."""

    H: int
    W: int
    C: int
    OH: int
    OW: int
    N: int
    KERNEL: int
    STRIDE: int

    @staticmethod
    def of(x: Tensor, weight: Tensor, stride: int) -> Geometry:
        """From an input [B, H, W, C] and a weight [N, kernel, kernel, C]."""
        height, width, channels = x.shape[1:]
        outputs, kernel = weight.shape[:2]
        rows, columns = ((side - kernel) // stride + 1 for side in (height, width))
        return Geometry(height, width, channels, rows, columns, outputs, kernel, stride)


class Tile(NamedTuple):
    """What a program computes at a time: rows of pixels, columns of a patch's values. The fastest on an H200."""

    rows: int
    columns: int
    warps: int
    stages: int


def convolution(
    x: Tensor, weight: Tensor, bias: Tensor, stride: int, scale: float, slope: float, result: torch.dtype
) -> Tensor:
    """leaky_relu(scale * convolution + bias), [B, H, W, N]."""
    from rnd.models import convolution_kernels as kernels

    sizes = Geometry.of(x, weight, stride)
    y = torch.empty(len(x), sizes.OH, sizes.OW, sizes.N, dtype=result, device=x.device)
    pixels, row = y.numel() // sizes.N, sizes.KERNEL * sizes.C
    tile = Tile(64, 64, warps=4, stages=4) if pixels < SMALL else Tile(128, 64, warps=8, stages=3)
    if row % 64:
        tile = Tile(256, row, warps=4, stages=3)
    kernels.forward[(cdiv(pixels, tile.rows),)](
        x, weight, bias, y, pixels, scale, slope, *sizes, torch.finfo(result).max, tile.rows, tile.columns,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return y


def input_gradient(grad: Tensor, weight: Tensor, x: Tensor, stride: int, slope: float) -> Tensor:
    """Gradient of a convolution's input, before the activation that made that input."""
    from rnd.models import convolution_kernels as kernels

    sizes = Geometry.of(x, weight, stride)
    taps, blocks = sizes.KERNEL // stride, len(x) * (sizes.H // stride) * (sizes.W // stride)
    # [N, taps, pixel, taps, pixel, C] -> [pixel, pixel, C, taps, taps, N]: by the pixel within a block
    by_pixel = weight.view(sizes.N, taps, stride, taps, stride, sizes.C).permute(2, 4, 5, 1, 3, 0).contiguous()
    grad_x, rows = torch.empty_like(x), 128
    kernels.input_gradient[(cdiv(blocks, rows),)](
        grad, by_pixel, x, grad_x, blocks, slope, *sizes, torch.finfo(grad.dtype).max, rows, num_warps=4, num_stages=3
    )
    return grad_x


def weight_gradient(x: Tensor, grad: Tensor, weight: Tensor, stride: int) -> tuple[Tensor, Tensor]:
    """Gradients of a convolution's weight [splits, K, N] and bias [splits, N], to be summed over splits, from that of
    its result before the activation."""
    from rnd.models import convolution_kernels as kernels

    sizes, (splits, size, _) = Geometry.of(x, weight, stride), partial_sums(weight)
    pixels, columns = grad.numel() // sizes.N, columns_of(size)
    tile = Tile(32, columns, warps=4, stages=4) if columns > sizes.N * 4 else Tile(64, columns, warps=4, stages=3)
    grad_weight = torch.empty(partial_sums(weight), device=x.device)
    grad_bias = torch.empty(splits, sizes.N, device=x.device)
    kernels.weight_gradient[(size // columns, splits)](
        x, grad, grad_weight, grad_bias, pixels, *sizes, tile.rows, columns, cdiv(cdiv(pixels, splits), tile.rows),
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    return grad_weight, grad_bias


def partial_sums(weight: Tensor) -> tuple[int, int, int]:
    """Shape [splits, K, N] of a weight's gradient: programs share the patch's values and the output pixels."""
    size = weight[0].numel()
    return PROGRAMS // (size // columns_of(size)), size, len(weight)


def columns_of(size: int) -> int:
    """Values of a patch of `size` values that one program of a weight gradient takes."""
    return next(columns for columns in (256, 128, 64) if size % columns == 0)


def blocks_shape(x: Tensor) -> tuple[int, ...]:
    batch, channels, height, width = x.shape
    return batch, height // BLOCK, width // BLOCK, channels * BLOCK**2


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


@space_to_depth.register_fake
def _(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.new_empty(blocks_shape(x), dtype=dtype)


@torso.register_fake
def _(x: Tensor, operands: list[Tensor], *rest: Any) -> list[Tensor]:
    inputs = [x]
    for weight, stride in zip(operands, STRIDES, strict=True):
        sizes, last = Geometry.of(inputs[-1], weight, stride), len(inputs) == len(STRIDES)
        dtype = torch.float32 if last else weight.dtype
        inputs.append(x.new_empty(len(x), sizes.OH, sizes.OW, sizes.N, dtype=dtype))
    return inputs[1:]


@torso_gradients.register_fake
def _(grad: Tensor, inputs: list[Tensor], operands: list[Tensor], slope: float) -> list[Tensor]:
    weights = [grad.new_empty(partial_sums(w), dtype=torch.float32) for w in operands]
    return weights + [w.new_empty(len(w), w.shape[-1]) for w in weights]


def _save(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, operands, weights, _, ctx.scale, ctx.slope = inputs
    ctx.shapes = [w.shape for w in weights]
    ctx.save_for_backward(x, *output, *operands)


def _backward(ctx: Any, grads: list[Tensor]) -> tuple[Any, ...]:
    count, saved = len(STRIDES), ctx.saved_tensors
    inputs, last, operands = saved[:count], saved[count], saved[count + 1 :]
    grad = grads[-1] * torch.where(last > 0, 1.0, ctx.slope)
    # a power of two, so that scaling changes no bits; the gradients are divided by it below
    scale = torch.exp2(torch.floor(torch.log2(MAX_GRADIENT / grad.abs().amax().clamp_min(1e-30))))
    sums = torso_gradients((grad * scale).to(operands[0].dtype), list(inputs), list(operands), ctx.slope)
    sums = [part.sum(0) / scale for part in sums]
    weights = [total.T.reshape(shape) for total, shape in zip(sums[:count], ctx.shapes, strict=True)]
    weights[0] = weights[0] * ctx.scale
    return None, [None] * count, weights, sums[count:], None, None


torso.register_autograd(_backward, setup_context=_save)
