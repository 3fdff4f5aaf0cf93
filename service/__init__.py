"""The service: a self-hosted implementation of the external API in `spec`, in a separate process."""

from typing import Final

DISTRIBUTION: Final = "runwarden-console"
"""Its name in package registries; the console has the same constant, and shares no code with the service."""
