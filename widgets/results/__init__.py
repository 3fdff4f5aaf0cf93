"""What a run's log, diff and review draw."""
