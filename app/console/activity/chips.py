"""What the Activity room is narrowed by, in words."""

from app.console.activity.query import VIEWS, ActivityQuery
from app.text import safe_text
from widgets.activity.bar import Chip
from widgets.activity.formatting import outcome_badge, what
from widgets.badges import Badge
from widgets.frame.notice import Notice


def kind_badge(kind: str) -> Badge:
    """A kind as a list to choose from draws it."""
    return Badge("·", what(kind), "plain")


def views(wish: ActivityQuery) -> tuple[Chip, ...]:
    """The ready-made views, the current one marked."""
    return tuple(
        Chip(str(index), safe_text(f"[{view.title}]" if index == wish.view else view.title), index == wish.view)
        for index, view in enumerate(VIEWS)
    )


def filters(wish: ActivityQuery) -> tuple[Chip, ...]:
    """What it is narrowed by, or could be."""
    kinds = _few(tuple(what(kind) for kind in wish.kinds))
    outcomes = _few(tuple(outcome_badge(outcome).word for outcome in wish.outcomes))
    return (
        Chip("kinds", safe_text(f"what {kinds} ▾"), bool(wish.kinds)),
        Chip("outcomes", safe_text(f"outcome {outcomes} ▾"), bool(wish.outcomes)),
        Chip("since", safe_text(f"since {wish.since} ▾"), wish.since != "any"),
    )


def _few(names: tuple[str, ...]) -> str:
    if not names:
        return "any"
    return names[0] if len(names) == 1 else f"{names[0]} +{len(names) - 1}"


def nothing(wish: ActivityQuery, held: int) -> Notice:
    """Why there is nothing."""
    if wish.is_narrowed and held:
        return Notice("∅", "Nothing that happened matches", (f"{held:,} entries are here; esc shows them again.",))
    if held:
        return Notice("✓", VIEWS[wish.view].empty, (f"{held:,} entries are here; [ and ] change the view.",))
    lines = ("Every write and every poll is entered here,", "with its outcome, whichever process it was.")
    return Notice("○", VIEWS[wish.view].empty, lines, "plain")
