"""A mistake in the configuration, said so that it can be corrected at once."""

from pathlib import Path
from typing import ClassVar


class ConfigError(Exception):
    """The configuration cannot be used; `str()` names file, line, key, what is wrong and the cure."""

    kind: ClassVar[str] = "config"

    def __init__(
        self, message: str, *, cure: str, file: Path | None = None, key: str | None = None, line: int | None = None
    ) -> None:
        self.file = file
        """None: the mistake is not in a file (the environment, or nothing is configured)."""
        self.key = key
        """Dotted, as in `profiles.acme.base_url`."""
        self.line = line
        """Counted from 1; None where no one line is to blame."""
        self.message = message
        self.cure = cure
        place = "" if file is None else f"{file}{f':{line}' if line is not None else ''}: "
        super().__init__(f"{place}{f'{key}: ' if key else ''}{message} {cure}")
