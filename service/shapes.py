"""Parts of JSON from outside, which may be of any type: one of another type counts as empty."""

from typing import Any


def table(value: object) -> dict[str, Any]:
    """Return an object; empty: it is none."""
    return value if isinstance(value, dict) else {}


def items(value: object) -> list[Any]:
    """Return a list; empty: it is none."""
    return value if isinstance(value, list) else []
