"""Keys and their actions, read from the bindings: for the bottom line, the help and the palette."""

from dataclasses import dataclass
from typing import Any, Literal

from textual.dom import DOMNode
from textual.screen import Screen

from widgets.frame.bars import KeyHint

KeyScope = Literal["here", "in the list", "everywhere"]


@dataclass(frozen=True, slots=True)
class KeyAction:
    """An action that is available now."""

    keys: tuple[str, ...]
    """The keys, as they are shown."""
    does: str
    action: str
    node: DOMNode
    """The node that has the action."""
    scope: KeyScope
    enabled: bool
    shown: bool
    """Whether the bottom line shows it."""
    more: str = ""
    """A sentence about the action."""


def key_actions(screen: Screen[Any]) -> tuple[KeyAction, ...]:
    """All of our keys on a screen, those of the focused widget first."""
    found: dict[tuple[KeyScope, str], list[Any]] = {}
    for active in screen.active_bindings.values():
        scope: KeyScope = "here" if active.node is screen else "in the list"
        # Textual's own bindings, such as moving the focus, have no id and are not shown.
        if active.binding.id is not None or active.binding.show:
            place: KeyScope = "everywhere" if active.node is screen.app else scope
            found.setdefault((place, active.binding.action), []).append(active)
    return tuple(
        KeyAction(
            tuple(screen.app.get_key_display(active.binding) for active in group),
            group[0].binding.description,
            action,
            group[0].node,
            scope,
            group[0].enabled,
            group[0].binding.show,
            group[0].binding.tooltip,
        )
        for (scope, action), group in found.items()
    )


def key_hints(screen: Screen[Any]) -> tuple[KeyHint, ...]:
    """The hints for the bottom line, without keys that the focused widget would type."""
    focused = screen.focused
    return tuple(
        KeyHint(each.keys[0], each.does, each.action, each.enabled, at_end=each.does == "help")
        for each in key_actions(screen)
        if each.shown
        and not (focused and len(each.keys[0]) == 1 and focused.check_consume_key(each.keys[0], each.keys[0]))
    )
