"""What a run is: the config and its options. The config that a game starts from: `rnd.config.presets`."""

from rnd.config.config import (
    BonusOptions,
    CheckpointConfig,
    Config,
    EnvConfig,
    PolicyOptions,
    Reads,
    WriterOptions,
    open_options,
    recording_field,
    runtime_field,
    state_field,
)

__all__ = [
    "BonusOptions",
    "CheckpointConfig",
    "Config",
    "EnvConfig",
    "PolicyOptions",
    "Reads",
    "WriterOptions",
    "open_options",
    "recording_field",
    "runtime_field",
    "state_field",
]
