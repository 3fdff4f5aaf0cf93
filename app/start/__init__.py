"""The start of a process: its first frame and its three streams, before anything slow is imported."""
