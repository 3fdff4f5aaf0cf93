"""Actions without a key: the palette has them, and `[keys]` gives them one."""

from typing import Final

from textual.binding import Binding

NO_KEY: Final = "no_key_"
"""The prefix of names of keys that no terminal sends."""


def unkeyed(action: str, description: str, *, id: str, tooltip: str = "") -> Binding:
    """Bind an action to no key until the user gives it one."""
    return Binding(f"{NO_KEY}{id}", action, description, show=False, tooltip=tooltip, id=id)
