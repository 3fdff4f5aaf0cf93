"""Placeholders: `{run.repository}` and the like, checked when a rule is read, filled when it fires."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from app.rules.rule import (
    DoAgent,
    DoCancel,
    DoCommand,
    DoContinue,
    DoNotify,
    DoRetry,
    DoStart,
    OnHealth,
    OnInterval,
    OnRun,
    OnSchedule,
    OnStuck,
    OnUnknownAction,
    Response,
    Trigger,
)
from app.text import as_argument

_RUN: Final = ("run.id", "run.repository", "run.branch", "run.status", "run.was", "run.reason")
_ALWAYS: Final = ("rule.name", "profile.name", "time", "date")
_OF: Final[Mapping[type, tuple[str, ...]]] = {
    OnSchedule: (),
    OnInterval: (),
    OnRun: _RUN,
    OnStuck: _RUN,
    OnHealth: ("host.platform", "host.status"),
    OnUnknownAction: ("action.id", "action.kind", "action.subject"),
}
_PLACEHOLDER: Final = re.compile(r"\{([a-z][a-z_]*(?:\.[a-z_]+)?)\}")
"""JSON and shell braces in a text stay as they are."""


def known_to(trigger: Trigger) -> tuple[str, ...]:
    """The placeholders that this trigger fills."""
    return (*_OF[type(trigger)], *_ALWAYS)


def texts_of(do: Response) -> Iterator[str]:
    """Every text of a response in which placeholders are filled."""
    match do:
        case DoStart(instructions, repository, branch):
            yield from filter(None, (instructions, repository, branch))
        case DoAgent(_, repository, branch, inputs):
            yield from filter(None, (repository, branch, *(value for _, value in inputs)))
        case DoContinue(instructions):
            yield instructions
        case DoNotify(_, title, text):
            yield from (title, text)
        case DoCommand(argv):
            yield from argv
        case DoRetry() | DoCancel():
            pass


def mentions(do: Response, name: str) -> bool:
    """Whether a response has this placeholder."""
    return any(name in names_in(text) for text in texts_of(do))


def names_in(text: str) -> list[str]:
    """The names of a text's placeholders, known or not."""
    return [found for found in _PLACEHOLDER.findall(text) if "." in found or found in _ALWAYS]


def filled(text: str, facts: Mapping[str, str]) -> str:
    """The text with its facts, in one pass: a value with braces in it is never filled again."""
    return _PLACEHOLDER.sub(lambda found: facts.get(found[1], found[0]), text)


def filled_argument(argument: str, facts: Mapping[str, str]) -> str:
    """One argument of a program: a placeholder's value never makes it an option or a file name."""
    if _PLACEHOLDER.match(argument) is None:
        return filled(argument, facts)
    return as_argument(filled(argument, facts))
