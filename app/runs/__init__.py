"""Runs: the list, search, views, one run and its pane, and their commands."""
