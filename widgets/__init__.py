"""What is drawn: widgets that are given facts and hand back wishes, and touch nothing else."""
