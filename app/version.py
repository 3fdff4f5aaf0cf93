"""The version and the distribution's name, in one place: the build, `--version` and every cure read them here."""

from typing import Final

__version__ = "0.1.0"
DISTRIBUTION: Final = "runwarden-console"
"""What package registries call it; the name of the command is another distribution's there."""
VERSION_LINE: Final = f"runwarden, version {__version__}"
