"""The algorithm: collect, score, returns, update."""
