"""One row per iteration: what it holds, and who writes it."""
