"""The paper's experiments: one experiment per figure or table, and where its runs are."""
