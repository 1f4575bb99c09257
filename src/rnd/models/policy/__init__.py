"""Policy networks: one file per policy. `rnd.config.components.POLICIES` names them."""

from __future__ import annotations

from rnd.config import Config
from rnd.config.components import POLICIES
from rnd.envs.spec import EnvSpec
from rnd.foundation.errors import UserError
from rnd.models.policy.base import Policy
from rnd.models.policy.normalized import NormalizedPolicy


def make_policy(config: Config, spec: EnvSpec) -> Policy:
    """The policy network of a run. Refuses one that cannot read the environment's observations."""
    cls, kind = POLICIES.load(config.policy, Policy), spec.observation.kind
    if kind not in cls.reads:
        fits = "mlp" if kind == "vector" else "cnn"
        if kind == "mixed" and "image" in cls.reads:
            fits += f", or --env.reads image for {config.policy}"
        shown = f"{spec.id} shows {'images with vectors' if kind == 'mixed' else f'{kind}s'}"
        raise UserError(f"{shown}, which --policy {config.policy} cannot read; nearest: --policy {fits}")
    policy: Policy = cls(spec.observation, spec.action, POLICIES.options(config.policy, config.policy_options))
    if config.shuffle and policy.hidden_size:
        raise UserError(f"--shuffle is for policies without memory, and {config.policy} has one; add --no-shuffle")
    if not config.normalize_obs:
        return policy
    if not spec.observation.vector_size:
        raise UserError(f"--normalize-obs is for vectors, and {spec.id} shows images; nearest: --no-normalize-obs")
    return NormalizedPolicy(policy, spec.observation)
