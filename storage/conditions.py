"""The conditions of a query, put together one by one."""

from collections.abc import Collection

from storage.values import sqlite_text


class Conditions:
    """Conditions that all hold, with their parameters."""

    def __init__(self, *conditions: str) -> None:
        self._conditions = ["1", *conditions]
        self.parameters: tuple[str | int, ...] = ()

    def __str__(self) -> str:
        """The conditions as SQL."""
        return " AND ".join(self._conditions)

    def add(self, condition: str, *parameters: str | int) -> None:
        """Require this too."""
        self._conditions.append(condition)
        self.parameters += tuple(sqlite_text(each) if isinstance(each, str) else each for each in parameters)

    def is_in(self, column: str, values: Collection[str]) -> None:
        """Require one of these values, if there are any."""
        if values:
            self.add(f"{column} IN ({', '.join('?' * len(values))})", *values)
