"""Sizes computed by hand from the paper's appendix, gains by singular values."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from rnd.envs.spec import ActionSpec, ObservationSpec
from rnd.models.networks import MapLinear, linear_channels_last, pixels, predictor_network, target_network
from rnd.models.policy.cnn import CNN
from rnd.models.policy.gru import GRU
from rnd.models.policy.mlp import MLP

IMAGE, VECTOR = ObservationSpec("image", (84, 84)), ObservationSpec("vector", (10,))
ACTIONS = ActionSpec("discrete", (18,))


def parameters(module):
    return sum(p.numel() for p in module.parameters())


def fc(inputs, outputs):
    return inputs * outputs + outputs


def conv(inputs, outputs, kernel):
    return inputs * outputs * kernel**2 + outputs


POLICY_CONVOLUTIONS = conv(4, 32, 8) + conv(32, 64, 4) + conv(64, 64, 4)  # 84 -> 20 -> 9 -> 6
FEATURE_CONVOLUTIONS = conv(1, 32, 8) + conv(32, 64, 4) + conv(64, 64, 3)  # 84 -> 20 -> 9 -> 7


def test_cnn_policy_size():
    expected = POLICY_CONVOLUTIONS + fc(64 * 36, 256) + fc(256, 448) + 2 * fc(448, 448) + fc(448, 18) + 2 * fc(448, 1)
    assert parameters(CNN(IMAGE, ACTIONS, CNN.Options())) == expected == 1_223_156


def test_the_other_third_convolution():
    """3 x 3 as in the encoder that the paper cites: 84 -> 20 -> 9 -> 7."""
    smaller = conv(64, 64, 4) - conv(64, 64, 3)
    larger = fc(64 * 49, 256) - fc(64 * 36, 256)
    assert parameters(CNN(IMAGE, ACTIONS, CNN.Options(kernel=3))) == 1_223_156 - smaller + larger


def test_gru_policy_size():
    rest = POLICY_CONVOLUTIONS + fc(64 * 36, 256) + 2 * fc(256, 256) + fc(256, 18) + 2 * fc(256, 1)
    assert parameters(GRU(IMAGE, ACTIONS, GRU.Options())) == rest + fc(512, 512) + fc(512, 256)
    torch_cell = 3 * (256 * 256 + 256 * 256 + 2 * 256)
    assert parameters(GRU(IMAGE, ACTIONS, GRU.Options(cell="torch"))) == rest + torch_cell


def test_the_releases_cell_resets_the_state_before_the_matrix_product():
    """Cho et al. (2014) in numpy; torch's cell with the same weights would reset after it."""
    policy = GRU(VECTOR, ACTIONS, GRU.Options(width=8))
    torch.nn.init.normal_(policy.gru.gates.bias)
    torch.nn.init.normal_(policy.gru.candidate.bias)
    x, h = np.random.default_rng(0).normal(size=(2, 5, 8))
    gates, candidate = policy.gru.gates, policy.gru.candidate
    (v, c), (w, b) = (
        (layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()) for layer in (gates, candidate)
    )
    m, r = np.split(1 / (1 + np.exp(-(np.concatenate([h, x], 1) @ v.T + c))), 2, axis=1)
    expected = m * h + (1 - m) * np.tanh(np.concatenate([r * h, x], 1) @ w.T + b)
    found = policy.gru.double()(torch.tensor(x), torch.tensor(h))
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-12)


def test_the_releases_weights_are_orthogonal_over_state_and_input():
    cell = GRU(VECTOR, ACTIONS, GRU.Options(width=8)).gru
    for layer in (cell.gates, cell.candidate):
        rows = layer.weight.detach() @ layer.weight.detach().T
        torch.testing.assert_close(rows, torch.eye(len(rows)), rtol=1e-5, atol=1e-5)


def test_mlp_policy_size():
    expected = fc(10, 64) + fc(64, 64) + 2 * fc(64, 64) + fc(64, 18) + 2 * fc(64, 1)
    assert parameters(MLP(VECTOR, ACTIONS, MLP.Options())) == expected


def test_target_and_predictor_size():
    assert parameters(target_network(IMAGE, 512, 256)) == FEATURE_CONVOLUTIONS + fc(64 * 49, 512)
    expected = FEATURE_CONVOLUTIONS + fc(64 * 49, 512) + 2 * fc(512, 512)
    assert parameters(predictor_network(IMAGE, 512, 256)) == expected
    vector = fc(10, 32) + fc(32, 32) + fc(32, 16)
    assert parameters(target_network(VECTOR, 16, 32)) == vector
    assert parameters(predictor_network(VECTOR, 16, 32)) == vector + 2 * fc(16, 16)


def gains(module):
    return {
        name: torch.linalg.svdvals(weight.detach().flatten(1))
        for name, weight in module.named_parameters()
        if name.endswith("weight") and weight.dim() > 1
    }


def test_gains_are_the_papers():
    expected = {"torso": 2**0.5, "policy_branch": 0.1, "value_branch": 0.1, "logits": 0.01, "value": 0.01}
    for name, values in gains(CNN(IMAGE, ACTIONS, CNN.Options())).items():
        gain = next(gain for start, gain in expected.items() if name.startswith(start))
        torch.testing.assert_close(values, torch.full_like(values, gain), rtol=1e-4, atol=1e-5, msg=name)
    for network in (target_network(IMAGE, 512, 256), predictor_network(IMAGE, 512, 256)):
        for name, values in gains(network).items():
            torch.testing.assert_close(values, torch.full_like(values, 2**0.5), rtol=1e-4, atol=1e-4, msg=name)


@pytest.mark.parametrize("kind", [CNN, GRU])
def test_biases_start_at_zero(kind):
    biases = [p for name, p in kind(IMAGE, ACTIONS, kind.Options()).named_parameters() if "bias" in name]
    assert biases and all(not bias.any() for bias in biases)


def test_the_target_is_frozen():
    assert not any(p.requires_grad for p in target_network(IMAGE, 512, 256).parameters())


@pytest.mark.parametrize("cell", ["release", "torch"])
def test_a_gru_unrolled_equals_single_steps_with_resets(cell):
    torch.manual_seed(0)
    policy = GRU(VECTOR, ACTIONS, GRU.Options(width=16, cell=cell))
    obs, first = torch.rand(6, 3, 10), torch.rand(6, 3) < 0.4
    hidden = start = torch.rand(3, 16)
    outputs = []
    for t in range(6):
        out, hidden = policy(obs[t], hidden * (~first[t])[:, None])
        outputs.append(out)
    unrolled = policy.unroll(obs, start, first)
    for name in ("logits", "value_ext", "value_int"):
        torch.testing.assert_close(getattr(unrolled, name), torch.stack([getattr(out, name) for out in outputs]))


def test_a_gaussian_head_for_boxes():
    policy = MLP(VECTOR, ActionSpec("continuous", (2,), (-1, -1), (1, 1)), MLP.Options(16))
    out, _ = policy(torch.rand(5, 10), torch.zeros(5, 0))
    assert out.logits.shape == (5, 4)
    assert not out.logits[:, 2:].any()  # std 1 at the start


def test_a_layer_over_maps_is_one_over_flattened_maps():
    """Also channels last, where the weights are permuted instead of the maps: values and gradients."""
    layer, maps = MapLinear(4 * 2 * 3, 5).double(), torch.randn(7, 4, 2, 3, dtype=torch.float64)
    results = []
    for out in (
        layer(maps),
        linear_channels_last(maps, layer.weight, layer.bias),
        F.linear(maps.flatten(1), *layer.parameters()),
    ):
        results.append([out, *torch.autograd.grad(out.square().sum(), list(layer.parameters()))])
    for other in results[:2]:
        for one, flattened in zip(other, results[2], strict=True):
            torch.testing.assert_close(one, flattened, rtol=1e-12, atol=1e-12)
    assert torch.equal(layer(maps.flatten(1)), layer(maps))


@pytest.mark.parametrize("kind", [CNN, GRU])
def test_images_are_scaled_to_one(kind):
    """A white frame is an input of ones; the torso has no other scaling."""
    policy = kind(IMAGE, ACTIONS, kind.Options())
    frames = torch.randint(0, 256, (2, 4, 84, 84), dtype=torch.uint8)
    torch.testing.assert_close(policy.features(frames), policy.torso(frames.double().div(255).float()))
    white = torch.full((1, 4, 84, 84), 255, dtype=torch.uint8)
    torch.testing.assert_close(policy.features(white), policy.torso(torch.ones(1, 4, 84, 84)))


def test_images_reach_a_cpus_convolutions_in_the_order_of_the_weights():
    """Otherwise the first convolution copies them, forwards and backwards: a fifth of an update."""
    policy, inputs = CNN(IMAGE, ACTIONS, CNN.Options()), []
    policy.torso[0][0].register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    policy.unroll(torch.zeros(3, 2, 4, 84, 84, dtype=torch.uint8), torch.zeros(2, 0), torch.zeros(3, 2))
    assert inputs[0].is_contiguous(memory_format=torch.channels_last)


def test_vectors_are_not_scaled():
    policy, obs = MLP(VECTOR, ACTIONS, MLP.Options()), torch.randn(3, 10)
    assert torch.equal(policy.features(obs), policy.torso(obs))


def test_bytes_are_divided_by_255_in_the_memory_order_of_the_convolutions():
    frames = torch.randint(0, 256, (3, 4, 84, 84), dtype=torch.uint8)
    found = pixels(frames)
    assert torch.equal(found, frames.float() / 255)
    assert found.is_contiguous(memory_format=torch.channels_last) and found.shape == frames.shape
