"""The paper's experiments: one recipe per figure or table, and the schedulers that train its runs."""
