"""The version and the distribution's name, for the build, `--version` and all messages."""

from typing import Final

__version__ = "0.1.0"
DISTRIBUTION: Final = "runwarden-console"
"""Its name in package registries; `runwarden` is another distribution there."""
VERSION_LINE: Final = f"runwarden, version {__version__}"
