"""Action distributions as pure functions of the policy's outputs.

Legend: B any leading shape, A policy outputs ("logits"), K action components.

Sampling takes its noise as an argument: all noise of a rollout is drawn at once, so actions do not depend on how the
environments are grouped, and a captured graph needs no generator.
"""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor

from rnd.envs.spec import ActionSpec


def logits_size(spec: ActionSpec) -> int:
    """Outputs of the policy head: one logit per choice, or one mean and one log std per dimension."""
    return 2 * spec.sizes[0] if spec.kind == "continuous" else sum(spec.sizes)


def dtype(spec: ActionSpec) -> torch.dtype:
    """The type of action tensors."""
    return torch.float32 if spec.kind == "continuous" else torch.int64


def noise_size(spec: ActionSpec) -> int:
    """Numbers of noise that a sample takes."""
    return spec.sizes[0] if spec.kind == "continuous" else sum(spec.sizes)


def draw_noise(spec: ActionSpec, shape: tuple[int, ...], generator: Generator, device: torch.device) -> Tensor:
    """Noise for `sample`: standard normal for boxes, Gumbel for choices."""
    if spec.kind == "continuous":
        return torch.randn(*shape, noise_size(spec), generator=generator, device=device)
    uniform = torch.rand(*shape, noise_size(spec), generator=generator, device=device)
    return -torch.log(-torch.log(uniform.clamp_min(1e-20)))


def sample(spec: ActionSpec, logits_BA: Tensor, noise_BA: Tensor) -> Tensor:
    """Actions as the environments take them: [B], or [B, K]."""
    if spec.kind == "continuous":
        mean_BK, log_std_BK = logits_BA.chunk(2, dim=-1)
        return mean_BK + log_std_BK.exp() * noise_BA
    choices = [group.argmax(-1) for group in (logits_BA + noise_BA).split(spec.sizes, dim=-1)]
    return choices[0] if spec.kind == "discrete" else torch.stack(choices, dim=-1)


def encode(spec: ActionSpec, actions_BK: Tensor) -> Tensor:
    """Actions as inputs of a network, [B, sum of sizes]: choices one-hot, boxes as they are."""
    if spec.kind == "continuous":
        return actions_BK
    if spec.kind == "discrete":
        actions_BK = actions_BK.unsqueeze(-1)
    choices = [torch.arange(size, device=actions_BK.device) for size in spec.sizes]
    parts = [actions_BK[..., k : k + 1] == numbers for k, numbers in enumerate(choices)]
    return torch.cat(parts, dim=-1).float()


def log_prob(spec: ActionSpec, logits_BA: Tensor, actions_BK: Tensor) -> Tensor:
    """Log probability (density for boxes) of actions, [B]."""
    if spec.kind == "continuous":
        mean_BK, log_std_BK = logits_BA.chunk(2, dim=-1)
        z_BK = (actions_BK - mean_BK) * torch.exp(-log_std_BK)
        return (-0.5 * z_BK.square() - log_std_BK - 0.5 * math.log(2 * math.pi)).sum(-1)
    if spec.kind == "discrete":
        actions_BK = actions_BK.unsqueeze(-1)
    total = torch.zeros(logits_BA.shape[:-1], dtype=logits_BA.dtype, device=logits_BA.device)
    for k, part in enumerate(logits_BA.split(spec.sizes, dim=-1)):
        total = total + part.log_softmax(-1).gather(-1, actions_BK[..., k : k + 1]).squeeze(-1)
    return total


def entropy(spec: ActionSpec, logits_BA: Tensor) -> Tensor:
    """Entropy (differential for boxes) of the distributions, [B]."""
    if spec.kind == "continuous":
        log_std_BK = logits_BA.chunk(2, dim=-1)[1]
        return (log_std_BK + 0.5 * math.log(2 * math.pi * math.e)).sum(-1)
    total = torch.zeros(logits_BA.shape[:-1], dtype=logits_BA.dtype, device=logits_BA.device)
    for part in logits_BA.split(spec.sizes, dim=-1):
        log_p = part.log_softmax(-1)
        total = total - (log_p.exp() * log_p).sum(-1)
    return total
