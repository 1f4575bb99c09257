"""Exploration by Random Network Distillation (Burda et al., 2018) as software."""

__version__ = "0.1.0"
