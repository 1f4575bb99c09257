"""What flows: rollouts as frames, and running statistics."""
