"""Measurements: ratios against others' code, taken side by side in one run, so that a busy machine hurts both."""
