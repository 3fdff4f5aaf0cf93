"""The service: a self-hosted implementation of the external API in `spec`, in a separate process."""

from typing import Final

DISTRIBUTION: Final = "runwarden-console"
"""Its name in package registries; the console has the same constant, and shares no code with the service."""


def how_to_add(extra: str) -> str:
    """The commands that add an extra. No release is on a package index, so they run in a checkout."""
    return f"in a checkout, pipx install --force '.[service,{extra}]', or pip install '.[service,{extra}]'"
