"""Keeping the cache in step with the service: new, changed and vanished runs, and health."""
