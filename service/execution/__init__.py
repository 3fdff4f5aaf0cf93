"""Execution: an accepted turn becomes exactly one commit on its branch, even if processes die on the way."""
