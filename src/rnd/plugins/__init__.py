"""The bonus for other people's agents: own loops, Gymnasium, Stable-Baselines3, TorchRL. docs/plugins.md shows how."""
