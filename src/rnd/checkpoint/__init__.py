"""Run folders, checkpoints and agents on disk."""
