"""The service: the external API of `spec`, implemented for real, in a process of its own."""

from typing import Final

DISTRIBUTION: Final = "runwarden-console"
"""Its name in package registries; the console has the same constant, and shares no code with the service."""
