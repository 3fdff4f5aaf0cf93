"""Keeping the cache in step with the service: new, changed and vanished runs, and health."""

from app.sync.health import HealthSync
from app.sync.runs import RunSync

__all__ = ["HealthSync", "RunSync"]
