"""News: one thing worth telling, in words, under a key that makes it unique."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from app.text import SafeText, safe_text

Kind = Literal["run", "stuck", "health", "link"]
Level = Literal["information", "warning", "error"]

ONE_BY_ONE: Final = 3
"""More news of a kind than this at a time are told as one."""

_LEVELS: Final[tuple[Level, ...]] = ("information", "warning", "error")
_MANY: Final[dict[Kind, str]] = {"run": "runs moved", "stuck": "runs are stuck", "health": "hosts", "link": "links"}


@dataclass(frozen=True, slots=True)
class News:
    """Something that happened, or a state that began or ended."""

    key: str
    """The same in every process that notices it, and after a restart."""
    kind: Kind
    level: Level
    title: SafeText
    body: SafeText
    at: datetime
    about: tuple[tuple[str, str], ...] = ()
    """Facts by name, as received: run_id, repository, branch, status, platform."""
    after: tuple[str, ...] = ()
    """Told only where one of these was told: the end of something. Empty: told in any case."""
    lasts: bool = False
    """A state that goes on, not an event: told late rather than never."""
    mine: bool = False
    """A followed run's: never swallowed by a summary."""


def condensed(news: Sequence[News]) -> tuple[News, ...]:
    """The news, with many of a kind told as one; in their order, the summaries last."""
    told: list[News] = []
    many: dict[tuple[Kind, str], list[News]] = {}
    for one in news:
        group = (one.kind, dict(one.about).get("status", "") if one.kind == "run" else "")
        many.setdefault(group, []).append(one)
    for group, members in many.items():
        mine = [one for one in members if one.mine]
        others = [one for one in members if not one.mine]
        told += mine + (others if len(others) <= ONE_BY_ONE else [_summary(group[0], group[1], others)])
    return tuple(told)


def _summary(kind: Kind, status: str, news: Sequence[News]) -> News:
    newest = max(news, key=lambda one: one.at)
    what = f"runs {status}" if kind == "run" and status else _MANY[kind]
    places = ", ".join(dict.fromkeys(dict(one.about).get("repository", "") for one in reversed(news)))
    return News(
        key=newest.key,
        kind=kind,
        level=max((one.level for one in news), key=_LEVELS.index),
        title=safe_text(f"{len(news)} {what}", limit=120),
        body=safe_text(f"in {places}" if places else newest.body, limit=200),
        at=newest.at,
        about=tuple((name, value) for name, value in newest.about if name == "status"),
    )
