"""Other programs as agents: their presets, where they are installed, and how their end is read."""
