"""Desktop notifications by the terminal itself: they reach the person's desk also over ssh."""

from collections.abc import Mapping
from typing import Final

from app.text import SafeText

_END: Final = "\x1b\\"
_TITLED: Final = ("foot", "rxvt-unicode")
"""Beginnings of TERM of terminals that take a title and a text (OSC 777)."""
_PLAIN: Final = ("xterm-kitty", "xterm-ghostty", "wezterm")
"""Beginnings of TERM of terminals that take one text (OSC 9)."""
_PLAIN_PROGRAMS: Final = frozenset({"iTerm.app", "WezTerm", "ghostty"})
"""As TERM_PROGRAM names them."""


def notification(title: SafeText, body: SafeText, env: Mapping[str, str]) -> str | None:
    """What to write to the terminal; None: it is not known to take any, or a multiplexer would swallow it."""
    if "TMUX" in env or "STY" in env or env.get("TERM", "").startswith(("tmux", "screen")):
        return None
    term = env.get("TERM", "")
    if term.startswith(_TITLED) or "VTE_VERSION" in env:
        # A semicolon would end the title.
        return f"\x1b]777;notify;{title.replace(';', ',')};{body.replace(';', ',')}{_END}"
    if term.startswith(_PLAIN) or env.get("TERM_PROGRAM") in _PLAIN_PROGRAMS:
        # `9;4;` would be a progress bar: the text begins with a word of ours, never with a digit.
        return f"\x1b]9;Runwarden: {title} - {body}{_END}"
    return None
