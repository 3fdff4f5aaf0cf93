"""Widgets of a run's log, diff and review."""
