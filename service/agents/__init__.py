"""Other programs as agents: their presets, their installation, and the outcome in their output."""
