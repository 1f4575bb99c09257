"""The paper's experiments: one recipe a figure or table, and what runs their cells."""
