"""The version and the distribution's name, for the build, `--version` and all messages."""

from typing import Final

__version__ = "0.1.0"
DISTRIBUTION: Final = "runwarden-console"
"""Its name in package registries; `runwarden` is another distribution there."""
VERSION_LINE: Final = f"runwarden, version {__version__}"


def how_to_add(extra: str) -> str:
    """The commands that add an extra. No release is on a package index, so they run in a checkout."""
    return f"in a checkout, pipx install --force '.[{extra}]', or pip install '.[{extra}]'"
