"""Speed beside its limits, measured in one run: environments, learner, and both together."""
