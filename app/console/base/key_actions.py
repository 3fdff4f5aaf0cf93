"""Keys and their actions, read from the bindings: for the bottom line, the help and the palette."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from textual.binding import ActiveBinding
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget

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
    found: dict[tuple[KeyScope, str], list[ActiveBinding]] = {}
    for active in screen.active_bindings.values():
        # Textual's own bindings, such as moving the focus, have no id and are not shown.
        if active.binding.id is not None or active.binding.show:
            found.setdefault((_scope(screen, active), active.binding.action), []).append(active)
    return tuple(_key_action(screen, scope, group) for (scope, _), group in found.items())


def key_hints(screen: Screen[Any]) -> tuple[KeyHint, ...]:
    """The hints for the bottom line, without keys that the focused widget would type."""
    focused = screen.focused
    return tuple(
        KeyHint(each.keys[0], each.does, each.action, each.enabled, at_end=each.does == "help")
        for each in key_actions(screen)
        if each.shown and not (focused and _types(focused, each.keys[0]))
    )


def _types(widget: Widget, key: str) -> bool:
    return len(key) == 1 and widget.check_consume_key(key, key)


def _key_action(screen: Screen[Any], scope: KeyScope, group: list[ActiveBinding]) -> KeyAction:
    first = group[0].binding
    return KeyAction(
        tuple(_keys(screen, group)),
        first.description,
        first.action,
        group[0].node,
        scope,
        group[0].enabled,
        first.show,
        first.tooltip,
    )


def _keys(screen: Screen[Any], group: list[ActiveBinding]) -> Iterator[str]:
    for active in group:
        yield screen.app.get_key_display(active.binding)


def _scope(screen: Screen[Any], active: ActiveBinding) -> KeyScope:
    if active.node is screen.app:
        return "everywhere"
    return "here" if active.node is screen else "in the list"
