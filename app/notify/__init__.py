"""Telling people what changed: what is worth it, once and by one process, on the ways they chose."""
