"""The torso's kernels beside float64 layers: on a GPU, or in Triton's interpreter where there is none."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from rnd.models import convolutions
from rnd.models.networks import AtariTorso

pytest.importorskip("triton")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STRIDES = (4, 2, 1)


@pytest.fixture(autouse=True)
def few_programs(monkeypatch):
    """The interpreter runs one program after the other."""
    if DEVICE == "cpu":
        monkeypatch.setattr(convolutions, "PROGRAMS", 18)


def layers(frames: int, kernel: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    shapes = (32, frames, 8, 8), (64, 32, 4, 4), (64, 64, kernel, kernel)
    weights = [torch.randn(s, generator=generator) * (2 / (s[1] * s[2] * s[3])) ** 0.5 for s in shapes]
    biases = [torch.randn(s[0], generator=generator) * 0.1 for s in shapes]
    return [w.to(DEVICE).requires_grad_() for w in weights], [b.to(DEVICE).requires_grad_() for b in biases]


def images(frames: int, uint8: bool, batch: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    if uint8:
        return torch.randint(0, 256, (batch, frames, 84, 84), generator=generator, dtype=torch.uint8).to(DEVICE)
    return torch.randn(batch, frames, 84, 84, generator=generator).to(DEVICE)


def reference(x, weights, biases, slopes):
    """In float64. `slopes` are numbers or tensors: what each activation multiplies by, place by place."""
    x = x.double() / 255 if x.dtype == torch.uint8 else x.double()
    for weight, bias, stride, slope in zip(weights, biases, STRIDES, slopes, strict=True):
        x = F.conv2d(x, weight.double(), bias.double(), stride) * slope
    return x


def distance(value: torch.Tensor, expected: torch.Tensor) -> float:
    value, expected = value.detach().double(), expected.detach().double()
    return float((value - expected).norm() / expected.norm())


@pytest.mark.parametrize(
    ("frames", "kernel", "slope", "uint8"), [(4, 4, 0.0, True), (1, 3, 0.2, False), (4, 3, 0.2, False)]
)
def test_maps_and_gradients_are_those_of_the_layers(frames, kernel, slope, uint8):
    """Within the rounding of 10 bits. The reference takes the kernels' word for which activations are positive: near
    zero, rounding decides that, and it would change gradients by percents."""
    x, (weights, biases) = images(frames, uint8), layers(frames, kernel)
    maps = convolutions.feature_maps(x, weights, biases, slope, torch.float16)
    upstream = torch.randn(maps.shape, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    gradients = torch.autograd.grad((maps * upstream).sum(), [*weights, *biases])

    activations = [a.movedim(-1, 1) for a in activations_of(x, weights, biases, slope)]
    slopes = [torch.where(a > 0, 1.0, slope).double() for a in activations]
    expected = reference(x, weights, biases, slopes)
    assert distance(maps, expected) < 1e-3
    exact = torch.autograd.grad((expected * upstream.double()).sum(), [*weights, *biases])
    for gradient, other in zip(gradients, exact, strict=True):
        assert distance(gradient, other) < 1.5e-3


def activations_of(x, weights, biases, slope):
    dtype = torch.float16
    blocks = convolutions.space_to_depth(x if x.dtype == torch.uint8 else x.to(dtype), dtype)
    operands = [w.movedim(1, -1).to(dtype).contiguous() for w in (F.pixel_unshuffle(weights[0], 4), *weights[1:])]
    scale = 1 / 255 if x.dtype == torch.uint8 else 1.0
    return convolutions.torso(blocks, [w.detach() for w in operands], operands, biases, scale, slope)


@pytest.mark.parametrize("size", [1e-12, 1e8])
def test_gradients_of_any_magnitude_keep_their_bits(size):
    """float16 alone would lose them: it ends at 65,504, and has no bits below 6e-8."""
    x, (weights, biases) = images(1, False), layers(1, 3)
    maps = convolutions.feature_maps(x, weights, biases, 0.2, torch.float16)
    upstream = torch.randn(maps.shape, generator=torch.Generator().manual_seed(2)).to(DEVICE)
    ordinary = torch.autograd.grad((maps * upstream).sum(), weights, retain_graph=True)
    scaled = torch.autograd.grad((maps * upstream * size).sum(), weights)
    for one, other in zip(ordinary, scaled, strict=True):
        assert distance(other / size, one) < 1e-3


def test_no_gradient_gives_zeros():
    x, (weights, biases) = images(1, False, batch=1), layers(1, 3)
    maps = convolutions.feature_maps(x, weights, biases, 0.2, torch.float16)
    assert not any(g.any() for g in torch.autograd.grad((maps * 0).sum(), [*weights, *biases]))


def test_activations_end_at_the_largest_number_and_nan_stays():
    """An infinite activation would end a run; NaN must."""
    x, (weights, biases) = images(1, False, batch=1), layers(1, 3)
    with torch.no_grad():
        biases[0] += 1e6
    assert activations_of(x, weights, biases, 0.2)[0].abs().max() == torch.finfo(torch.float16).max
    x[0, 0, 0, 0] = torch.nan
    assert activations_of(x, weights, biases, 0.2)[0][0, 0, 0].isnan().all()


@pytest.mark.parametrize("uint8", [True, False])
def test_space_to_depth_is_pixel_unshuffle(uint8):
    x = images(4, uint8)
    expected = F.pixel_unshuffle(x, 4).movedim(1, -1).to(torch.float16)
    assert torch.equal(convolutions.space_to_depth(x if uint8 else x.half(), torch.float16), expected)


def test_the_compiler_sees_the_shapes_and_strides_that_the_kernels_give():
    x, (weights, biases) = images(1, False, batch=1), layers(1, 3)
    dtype = torch.float16
    inputs = [convolutions.space_to_depth(x.half(), dtype), *activations_of(x, weights, biases, 0.2)]
    operands = [
        w.detach().movedim(1, -1).to(dtype).contiguous() for w in (F.pixel_unshuffle(weights[0], 4), *weights[1:])
    ]
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(convolutions.space_to_depth, (x.half(), dtype), test_utils=checks)
    torch.library.opcheck(convolutions.torso, (inputs[0], operands, operands, biases, 1.0, 0.2), test_utils=checks)
    grad = inputs[-1].half()
    torch.library.opcheck(convolutions.torso_gradients, (grad, inputs[:-1], operands, 0.2), test_utils=checks)


def test_where_operands_have_16_bits(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    assert convolutions.operand_dtype() == torch.float16
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: device == "cuda")
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.bfloat16)
    assert convolutions.operand_dtype() == torch.bfloat16
    monkeypatch.undo()
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    assert convolutions.operand_dtype() is None


@pytest.mark.parametrize("missing", [None, "gpu", "compiler", "headers", "triton"])
def test_what_the_kernels_need(monkeypatch, tmp_path, missing):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5) if missing == "gpu" else (8, 0))
    monkeypatch.setattr("shutil.which", lambda name: None if missing == "compiler" else f"/usr/bin/{name}")
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if missing == "triton" else object())
    if missing != "headers":
        (tmp_path / "Python.h").touch()
    assert convolutions.fused(torch.device("cuda", 1)) == (missing is None)
    assert not convolutions.fused(torch.device("cpu"))


def test_the_torso_uses_the_kernels_where_it_is_on_a_gpu(monkeypatch):
    """It finds out when it is moved there: a run on a CPU does not touch the GPU."""
    asked = []
    monkeypatch.setattr(
        "rnd.models.networks.fused", lambda device: bool(asked.append(device.type)) or device.type == "meta"
    )
    torso = AtariTorso(1, 3, nn.LeakyReLU, negative_slope=0.2)
    assert not torso.fused
    assert nn.Sequential(torso).to("meta")[0].fused
    assert {*asked} == {"cpu", "meta"}


def test_elsewhere_and_for_images_that_need_gradients_it_is_pytorchs_layers(monkeypatch):
    torso = AtariTorso(1, 3, nn.LeakyReLU, negative_slope=0.2).to(DEVICE)
    x = torch.randn(2, 1, 84, 84, device=DEVICE)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torso.fused = False
    expected = torso(x)
    torso.fused = True
    assert torch.equal(torso(x), expected)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    assert torch.autograd.grad(torso(x.requires_grad_()).sum(), x)[0].any()
    assert 0 < distance(torso(x.detach()), expected) < 1e-3
