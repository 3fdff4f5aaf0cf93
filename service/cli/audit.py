"""`audit` and `usage`: acts of administration, and what agents used of their models."""

from datetime import UTC, datetime
from typing import Final, get_args

import click

from service.cli.output import AdminCommand, AdminContext, AdminGroup, Row, line, owner_of
from service.clock import DAY_MICROS, EPOCH, now_micros, parse_duration, parse_rfc3339, rfc3339
from service.setup import SetupError
from service.store import audit as trail
from service.store.usage import Grouping, totals

audit = AdminGroup("audit", help="The audit trail of administration and tokens.")
_DAY: Final = click.DateTime(formats=["%Y-%m-%d"])
_SUMS: Final = ("runs", "turns", "requests", "input_tokens", "cached_tokens", "output_tokens", "cost_usd")
_HEADS: Final = {"input_tokens": "input", "cached_tokens": "cached", "output_tokens": "output", "cost_usd": "USD"}


@audit.command("list")
@click.option("--org", "slug", help="An organization's slug or id; of a deleted one, its id.")
@click.option("--since", help="An age such as 7d, or an instant such as 2026-01-31T08:00:00Z.")
@click.option("--action", help="Such as token.revoke, or token for all that begins with it.")
@click.option("--limit", default=200, show_default=True, type=click.IntRange(1, 100_000), help="How many entries.")
def list_all(admin: AdminContext, slug: str | None, since: str | None, action: str | None, limit: int) -> None:
    """List acts of administration, by whom and when, the latest at the end."""
    try:
        now, begin = now_micros(), None
        if since is not None:
            begin = parse_rfc3339(since, round_up=True) if "-" in since else now - parse_duration(since)
    except ValueError as error:
        raise SetupError(f"--since: {error}") from error
    with admin.read() as connection:
        # A deleted organization no longer has a slug, but the trail still has its id.
        is_id = slug is not None and slug.startswith("org_")
        owner_id = slug if is_id else owner_of(connection, slug)
        rows = trail.latest(connection, limit, organization_id=owner_id, since=begin, action=action)
    documents = list[Row]()
    for row in rows:
        at = rfc3339(row.at)
        owned = {"target": row.target, "organization_id": row.organization_id}
        document = {"at": at, "id": row.id, "actor": row.actor, "action": row.action, "outcome": row.outcome}
        outcome = "" if row.outcome == trail.DONE else row.outcome
        owner = "" if row.organization_id == row.target else row.organization_id
        text = line(at, row.actor, row.action, outcome, row.target or "-", owner, row.detail)
        documents.append((document | owned | {"detail": row.detail}, text))
    admin.show_rows("entries", documents)


@click.command("usage", cls=AdminCommand)
@click.option("--org", "slug", help="One organization: its slug or id. Default: all of them.")
@click.option("--from", "first", type=_DAY, metavar="DAY", help="The first day (UTC), such as 2026-01-31.")
@click.option("--to", "last", type=_DAY, metavar="DAY", help="The last day (UTC), included.")
@click.option("--by", type=click.Choice(get_args(Grouping)), default="organization", show_default=True)
def usage(admin: AdminContext, slug: str | None, first: datetime | None, last: datetime | None, by: Grouping) -> None:
    """Show what agents used of their models: requests, tokens, and dollars, at configured or at list prices."""
    if first is not None and last is not None and last < first:
        raise click.UsageError("--to is before --from: swap them.")
    with admin.read() as connection:
        owner = owner_of(connection, slug)
        begin, end = (None if day is None else (day.replace(tzinfo=UTC) - EPOCH).days for day in (first, last))
        groups = [*totals(connection, by, owner, begin, end), *totals(connection, None, owner, begin, end)]
    documents: list[dict[str, object]] = []
    for group in groups:
        day = {"day": rfc3339(group.subject["day"] * DAY_MICROS)[:10]} if "day" in group.subject else {}
        documents.append(group.subject | day | {"runs": group.runs, "turns": group.turns} | group.figures.document())
    *entries, whole = documents
    lines = []
    if entries:
        names = [*groups[0].subject]

        def cell(value: object) -> str:
            if isinstance(value, int | float):
                if isinstance(value, float):
                    return f"{value:,.4f}"
                return f"{value:,}"
            return "-" if value is None else str(value)

        rows = [[*names, *(_HEADS.get(name, name) for name in _SUMS)]]
        rows += [[cell(row.get(name)) for name in (*names, *_SUMS)] for row in (*entries, {names[0]: "total"} | whole)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        # Numbers are aligned to the right.
        sides = ["<"] * len(names) + [">"] * len(_SUMS)
        lines = ["  ".join(map("{:{}{}}".format, row, sides, widths)) for row in rows]
    if whole["list_prices_of"]:
        lines.append(f"USD: an estimate by list prices of {whole['list_prices_of']} where none is configured.")
    if whole["unpriced_requests"]:
        lines.append(f"USD: without the requests to models of unknown price: {whole['unpriced_requests']:,}.")
    admin.show({"by": by, "usage": entries, "total": whole}, *lines)
