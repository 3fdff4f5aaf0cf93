"""One letter, one meaning: a key learnt on one screen does the same on every other."""

from typing import Final

from app.console.keys.keymap import all_bindings, written

MEANINGS: Final = {
    "a": ("start a run of a named agent", {"agent"}),
    "A": ("apply the change", {"apply"}),
    "b": ("choose a branch", {"branch"}),
    "B": ("check the branch out", {"check out"}),
    "c": ("say something to the agent", {"answer", "continue"}),
    "C": ("the conversation", {"conversation"}),
    "d": ("the diff", {"diff"}),
    "D": ("enable or disable", {"on/off"}),
    "e": ("mark as done", {"done"}),
    "E": ("edit", {"edit", "edit and resend", "fix the line"}),
    "f": ("follow", {"follow", "follow all"}),
    "F": ("what is followed", {"followed runs"}),
    "g": ("to the beginning", {"to the first one", "to the first row", "top"}),
    "G": ("to the end", {"bottom", "to the end", "to the last one", "to the last row"}),
    "h": ("hide for a while", {"snooze"}),
    "H": ("copy a hunk", {"copy hunk"}),
    "i": ("the log as it is", {"raw"}),
    "I": ("import", {"import"}),
    "j": ("down", {"down", "next", "to the repositories"}),
    "J": ("mark, and down", {"mark down"}),
    "k": ("up", {"previous", "to the repositories", "up"}),
    "K": ("mark, and up", {"mark up"}),
    "l": ("the log", {"log"}),
    "L": ("open the file in a pager", {"pager"}),
    "m": ("mute", {"mute"}),
    "n": ("something new", {"create another", "new", "new file", "new organization", "new run"}),
    "N": ("open what the last notice is about", {"notice"}),
    "o": ("open in the browser", {"open in browser"}),
    "p": ("connect a project", {"onboard project"}),
    "P": ("pause or resume", {"pause/resume"}),
    "q": ("leave: a sheet, or the console", {"cancel", "close", "quit"}),
    "r": ("the review", {"review"}),
    "R": ("send an invitation again", {"send again"}),
    "s": ("choose a status", {"outcome", "status"}),
    "S": ("run now", {"run now"}),
    "t": ("choose a time", {"since", "when"}),
    "T": ("retry", {"retry failed"}),
    "u": ("undo", {"undo"}),
    "U": ("to the unknown outcome", {"unknown outcome"}),
    "v": ("resolve an unknown outcome", {"resolve"}),
    "V": ("the approvals", {"approvals"}),
    "w": ("send it when the run ends", {"later"}),
    "W": ("choose a kind", {"what"}),
    "x": ("export", {"export"}),
    "X": ("cancel what runs or waits", {"cancel", "cancel run", "stop"}),
    "y": ("copy", {"copy as curl", "copy id", "copy name", "copy run id"}),
    "Y": ("copy as a command", {"copy command"}),
    "z": ("fold", {"fold"}),
    "ctrl+b": ("a page up", {"page up"}),
    "ctrl+d": ("a page down", {"page down"}),
    "ctrl+e": ("open the editor", {"editor"}),
    "ctrl+f": ("a page down", {"page down"}),
    "ctrl+g": ("replay", {"replay"}),
    "ctrl+k": ("the other choice", {"confirm the other choice", "reject"}),
    "ctrl+l": ("list the agents", {"agents"}),
    "ctrl+n": ("begin with an empty form", {"fresh", "start fresh"}),
    "ctrl+o": ("the list of profiles: open it, or leave it", {"cancel", "switch profile"}),
    "ctrl+p": ("the palette", {"palette"}),
    "ctrl+r": ("refresh", {"refresh"}),
    "ctrl+s": (
        "do what the dialog names",
        {
            *("approve", "check and open", "confirm anyway", "create them", "preview", "preview, then send"),
            *("replace the file", "replace the view", "resolve it"),
        },
    ),
    "ctrl+t": ("a template", {"recipe", "template"}),
    "ctrl+u": ("a page up", {"page up"}),
    "ctrl+x": ("no choice", {"any"}),
    "ctrl+y": ("do it anyway", {"record it anyway", "write anyway"}),
    "ctrl+z": ("suspend", {"suspend"}),
}
"""What each letter means, and the descriptions of the actions that mean it."""


def test_one_letter_has_one_meaning_on_all_screens() -> None:
    """A new action on a letter belongs to its meaning, or gets another letter. Digits and signs depend on the place."""
    found: dict[str, set[str]] = {}
    for _, binding in all_bindings():
        for key in map(written, binding.key.split(",")):
            if key.removeprefix("ctrl+").isalpha() and len(key.removeprefix("ctrl+")) == 1:
                found.setdefault(key, set()).add(binding.description.lower())

    assert found == {letter: does for letter, (_, does) in MEANINGS.items()}


def test_refresh_is_one_key_on_all_screens() -> None:
    """It is bound once, for all of them."""
    refreshing = [(binding.key, binding.action) for _, binding in all_bindings() if binding.id == "app.refresh"]

    assert set(refreshing) == {("ctrl+r", "refresh"), ("f5", "refresh")}
