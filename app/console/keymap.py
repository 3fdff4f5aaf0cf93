"""The key map: actions with their keys, and mistakes in the user's own `[keys]`."""

import asyncio
import importlib
import pkgutil
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from msgspec import Struct
from textual.binding import Binding
from textual.dom import DOMNode
from textual.keys import ASCII_KEY_NAMES, KEY_ALIASES, Keys, _character_to_key
from textual.screen import ModalScreen

from app.console.session import Session
from app.engine.text import closest
from app.profiles import UserCommand
from widgets.kit import NO_KEY

Place = tuple[str, str]
"""A table of the configuration, and a name in it."""
_ROOTS: Final = ("app.", "widgets.")
_SCREENS: Final = re.compile(r"app\.console\.|app\.\w+\.screen|widgets\.")
"""The modules that declare keys."""
_MODIFIERS: Final = frozenset({"ctrl", "alt", "shift", "super", "hyper", "meta"})
_APP_CLASS: Final = "RunwardenApp"
# Textual has only the way back in public: from a key to its character.
_CHARACTERS: Final = {_character_to_key(character): character for character in string.punctuation}
"""The punctuation characters by Textual's names for them."""
_NAMED: Final = frozenset({*(key.value for key in Keys), *ASCII_KEY_NAMES.values(), *KEY_ALIASES, *_CHARACTERS})


class KeyFact(Struct, frozen=True):
    """An action and its keys."""

    id: str
    """Its name in `[keys]`."""
    keys: tuple[str, ...]
    """The default keys; none: the palette has it."""
    does: str
    where: tuple[str, ...]
    """The classes of the screens and widgets with this action."""


def catalog() -> tuple[KeyFact, ...]:
    """All actions whose keys can be changed, by id. Imports every screen: not for the way to the first frame."""
    for root in _ROOTS:
        package = importlib.import_module(root.removesuffix("."))
        for module in pkgutil.walk_packages(package.__path__, root):
            if _SCREENS.match(module.name):
                importlib.import_module(module.name)
    by_id: dict[str, list[tuple[str, Binding]]] = {}
    for kind in dict.fromkeys(_descendants(DOMNode)):
        for binding in bindings_of(kind):
            if binding.id is not None:
                by_id.setdefault(binding.id, []).append((kind.__name__, binding))
    return tuple(
        KeyFact(
            name,
            tuple(dict.fromkeys(key for _, binding in pairs if (key := key_text(binding.key)))),
            pairs[0][1].description,
            tuple(dict.fromkeys(owner for owner, _ in pairs)),
        )
        for name, pairs in sorted(by_id.items())
    )


async def report_mistakes(session: Session) -> None:
    """Report mistakes in the user's `[keys]` and in the keys of `[[commands]]`."""
    keys = session.settings.keys
    commands = session.settings.commands
    # In a thread: it imports every screen.
    for problem in await asyncio.to_thread(lambda: (*unknown_actions(keys), *problems(keys, commands))):
        session.notify(problem, severity="warning")


def unknown_actions(keys: Mapping[str, str]) -> dict[str, Place]:
    """The actions in `[keys]` that do not exist, as after an update: for each a warning with the fix, and its place."""
    names = {fact.id for fact in catalog()}
    warnings = dict[str, Place]()
    for name in (name for name in keys if name not in names):
        near = closest(name, names)
        fix = f"Did you mean {near}?" if near else "`runwarden config keys` lists the actions."
        warnings[f"keys.{name}: there is no such action, so the key does nothing. {fix}"] = ("keys", name)
    return warnings


def problems(keys: Mapping[str, str], commands: Sequence[UserCommand] = ()) -> dict[str, Place]:
    """The mistakes in `[keys]` and in the keys of `[[commands]]`: for each a sentence with the fix, and its place."""
    facts = catalog()
    return {**_unknown_keys(keys, commands), **_shared_keys(facts, keys), **_hidden_commands(facts, keys, commands)}


def _unknown_keys(keys: Mapping[str, str], commands: Sequence[UserCommand]) -> dict[str, Place]:
    """Keys that no terminal sends."""
    mistakes = dict[str, Place]()
    entries = [("keys", name, text) for name, text in keys.items()]
    entries += [("commands", command.name, command.key) for command in commands if command.key]
    for table, name, text in entries:
        for key in text.split(","):
            modifiers, last = _parts(key)
            is_known = last in _NAMED or (len(last) == 1 and last.isprintable())
            if not (is_known and _MODIFIERS.issuperset(modifiers)):
                mistakes[f'{name}: "{key}" is not a key; write it as in "C", "ctrl+l" or "f5".'] = table, name
    return mistakes


def _shared_keys(facts: Sequence[KeyFact], keys: Mapping[str, str]) -> dict[str, Place]:
    """Two actions that have the same key on the same screen: only one of them would run."""
    mistakes = dict[str, Place]()
    usual_keys = {fact.id: set(map(normal, fact.keys)) for fact in facts}
    first_with: dict[tuple[str, str], str] = {}
    # A sheet's keys replace those of the screen below.
    sheets = {kind.__name__ for kind in _descendants(ModalScreen)}
    screens = dict.fromkeys(where for fact in facts for where in fact.where if where not in sheets)
    # The user's own entry first, so that the sentence names it.
    for fact in sorted(facts, key=lambda fact: fact.id not in keys):
        is_everywhere = fact.id in keys and _APP_CLASS in fact.where
        for where, key in product(screens if is_everywhere else fact.where, _keys_of(fact, keys)):
            other = first_with.setdefault((where, key), fact.id)
            # Two defaults may share a key if they are never available at the same time.
            is_usual = key in usual_keys[other] & usual_keys[fact.id]
            if other != fact.id and other in keys and not is_usual:
                clash = f'"{keys[other]}" is the key of {fact.id} there. Give that one another key.'
                mistakes[f"keys.{other}: {clash}"] = "keys", other
    return mistakes


def _hidden_commands(
    facts: Sequence[KeyFact], keys: Mapping[str, str], commands: Sequence[UserCommand]
) -> dict[str, Place]:
    """Commands that never run, because a screen's action, or a command before them, gets the key first."""
    mistakes = dict[str, Place]()
    first_with = {key: fact.id for fact in reversed(facts) for key in _keys_of(fact, keys)}
    for command in commands:
        for key in map(normal, command.key.split(",") if command.key else ()):
            if key in first_with:
                clash = f'"{command.key}" is the key of {first_with[key]}. Choose another.'
                mistakes[f"commands, {command.name}: {clash}"] = "commands", command.name
            first_with.setdefault(key, command.name)
    return mistakes


def _parts(key: str) -> tuple[list[str], str]:
    """The modifiers of a key, and the key itself."""
    *modifiers, last = key.split("+") if key != "+" else [key]
    return modifiers, last


def normal(key: str) -> str:
    """A key as Textual names it: `?` is `question_mark`."""
    modifiers, last = _parts(key)
    name = _character_to_key(last) if len(last) == 1 else last
    return "+".join([*modifiers, name])


def key_text(key: str) -> str:
    """A key as users write it: `question_mark` is `?`; empty: it is not a key."""
    # A comma separates keys.
    if key == "comma":
        return key
    return "" if key.startswith(NO_KEY) else _CHARACTERS.get(key, key)


def bindings_of(kind: type[DOMNode]) -> Iterator[Binding]:
    """The bindings of one of our classes, inherited ones included."""
    taken: set[str] = set()
    for holder in kind.__mro__:
        if holder.__module__.startswith(_ROOTS):
            bindings = list(Binding.make_bindings(vars(holder).get("BINDINGS", ())))
            # A class's key replaces its parents'.
            yield from (binding for binding in bindings if binding.key not in taken)
            taken |= {binding.key for binding in bindings}


def _descendants(kind: type[DOMNode]) -> Iterator[type[DOMNode]]:
    for child in kind.__subclasses__():
        if child.__module__.startswith(_ROOTS):
            yield child
        yield from _descendants(child)


def _keys_of(fact: KeyFact, keys: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(map(normal, keys[fact.id].split(",") if fact.id in keys else fact.keys))
