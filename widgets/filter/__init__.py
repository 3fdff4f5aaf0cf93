"""What narrows the runs."""
