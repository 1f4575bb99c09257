"""The paper's experiments: one module a figure or table."""
