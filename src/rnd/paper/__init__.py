"""The paper's experiments: one recipe per figure or table, and where its runs are."""
