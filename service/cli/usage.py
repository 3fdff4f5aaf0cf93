"""`usage`: the tokens and dollars of agents, by organization, repository, agent or day."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, get_args

import click

from service.cli.output import AdminContext, admin_command
from service.clock import DAY_MICROS, EPOCH, rfc3339
from service.setup import find_organization
from service.store.usage import Grouping, UsageFilters, UsageTotal, totals

_DAY: Final = click.DateTime(formats=["%Y-%m-%d"])
_NUMBERS: Final = ("runs", "turns", "requests", "input_tokens", "cached_tokens", "output_tokens", "cost_usd")
_SUBJECTS: Final[dict[Grouping, tuple[str, ...]]] = {
    "organization": ("organization",),
    "repository": ("organization", "repository"),
    "agent": ("organization", "agent"),
    "day": ("day",),
}
_HEADS: Final = {"input_tokens": "input", "cached_tokens": "cached", "output_tokens": "output", "cost_usd": "USD"}


@click.command("usage")
@click.option("--org", "slug", help="One organization: its slug or id. Default: all of them.")
@click.option("--from", "first", type=_DAY, metavar="DAY", help="The first day (UTC), such as 2026-01-31.")
@click.option("--to", "last", type=_DAY, metavar="DAY", help="The last day (UTC), included.")
@click.option("--by", type=click.Choice(get_args(Grouping)), default="organization", show_default=True)
@admin_command
def usage(admin: AdminContext, slug: str | None, first: datetime | None, last: datetime | None, by: Grouping) -> None:
    """Show what agents used of their models: requests, tokens, and dollars at the configured prices."""
    if first is not None and last is not None and last < first:
        raise click.UsageError("--to is before --from: swap them.")
    names = _SUBJECTS[by]
    with admin.read() as connection:
        owner = None if slug is None else find_organization(connection, slug).id
        filters = UsageFilters(owner, _number(first), _number(last))
        entries = [_entry(one) for one in totals(connection, filters, by)]
        whole = _entry(totals(connection, filters, None)[0])
    lines = _table([*entries, {names[0]: "total"} | whole], names) if entries else []
    admin.show({"by": by, "usage": entries, "total": whole}, lines)


def _number(day: datetime | None) -> int | None:
    return None if day is None else (day.replace(tzinfo=UTC) - EPOCH).days


def _entry(one: UsageTotal) -> dict[str, object]:
    day = {"day": rfc3339(one.subject["day"] * DAY_MICROS)[:10]} if "day" in one.subject else {}
    return one.subject | day | {"runs": one.runs, "turns": one.turns} | one.figures.document()


def _table(entries: list[dict[str, object]], names: Sequence[str]) -> list[str]:
    """Return lines with a heading; numbers are aligned to the right."""
    heads = [*names, *(_HEADS.get(name, name) for name in _NUMBERS)]
    rows = [heads, *([_cell(one.get(name)) for name in (*names, *_NUMBERS)] for one in entries)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(heads))]
    sides = ["<" if index < len(names) else ">" for index in range(len(heads))]
    return ["  ".join(map("{:{}{}}".format, row, sides, widths)) for row in rows]


def _cell(value: object) -> str:
    match value:
        case float():
            return f"{value:,.4f}"
        case int():
            return f"{value:,}"
        case _:
            return "-" if value is None else str(value)
