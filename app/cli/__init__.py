"""The command line: the console's facts and actions for scripts."""

from enum import StrEnum


class Format(StrEnum):
    """The output formats."""

    TABLE = "table"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"

    @property
    def is_json(self) -> bool:
        """Whether the format is JSON or NDJSON, in which errors are JSON on stdout too."""
        return self in {Format.JSON, Format.NDJSON}
