"""The terminal: its first frame, signals, title and colours."""
