"""What a run leaves behind: its folder, metrics, episodes, progress display and checkpoints."""
