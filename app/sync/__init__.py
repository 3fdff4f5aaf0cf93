"""Keeping the cache true: what the service says, what is missing, and what cannot be known."""

from app.sync.health import HealthSync
from app.sync.runs import RunSync

__all__ = ["HealthSync", "RunSync"]
