"""The run table, and one run."""
