"""Execution: an accepted turn becomes a commit on its branch, once, whatever dies on the way."""
