"""What changed since the last review, and the follow-up's questions answered one by one, as Markdown."""

from collections.abc import Iterator
from typing import Final

from service.reviewer.earlier import Remembered, remember
from service.reviewer.markdown import code, escaped
from service.reviewer.review import Review
from service.reviewer.vocabulary import WORDS
from service.reviewer.wishes import matches

_SHOWN: Final = 20
_ANSWERS: Final = 10


def since(review: Review) -> Iterator[str]:
    """The section on the last review; nothing in a first turn."""
    if review.task.turn == 1 and review.since is None:
        return
    yield "## Since the last review"
    yield ""
    if review.since is None:
        problem = review.since_problem or "there is none"
        yield f"The last review could not be compared: {escaped(problem)}. Everything below counts as new."
        return
    groups = (
        ("Resolved", review.since.resolved),
        ("Still open", tuple(remember(one) for one in review.since.still_open)),
        ("New", tuple(remember(one) for one in review.since.new)),
        ("Not looked at this time", review.since.unseen),
    )
    yield ", ".join(f"{len(rows)} {title.lower()}" for title, rows in groups) + "."
    for title, rows in groups:
        if rows:
            yield ""
            yield f"**{title}**"
            yield ""
            yield from (f"- {_row(row)}" for row in rows[:_SHOWN])
            if len(rows) > _SHOWN:
                yield f"- and {len(rows) - _SHOWN} more"
    if any(row.rule.startswith("secret-") for row in review.since.resolved):
        yield ""
        yield "A secret that is gone from the files is still in their history: it stays valid until it is revoked."


def _row(row: Remembered) -> str:
    place = f" line {row.line}" if row.line else ""
    return f"{row.severity} `{row.rule}` in {code(row.path)}{place}"


def answers(review: Review) -> Iterator[str]:
    """A line for each rule, topic or path that the instructions mention: how it stands there."""
    for word in tuple(dict.fromkeys(review.wishes.asked))[:_ANSWERS]:
        rules = WORDS.get(word)
        about = escaped(word) if rules is not None else code(word)

        def meant(row: Remembered, rules: frozenset[str] | None = rules, word: str = word) -> bool:
            return row.rule in rules if rules is not None else matches(row.path, word)

        now = sum(meant(remember(one)) for one in review.reported)
        line = f"- About {about}: {now} finding{'' if now == 1 else 's'} now"
        if review.since is not None:
            resolved = sum(meant(row) for row in review.since.resolved)
            open_still = sum(meant(remember(one)) for one in review.since.still_open)
            line += f", {open_still} of them known from the last review; {resolved} resolved since"
        yield f"{line}."
