"""Why an open turn waits, computed when someone asks: nothing of it is stored."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import sqlalchemy as sa

from service.clock import SECOND_MICROS, Clock
from service.settings import ExecutionSettings
from service.store import dispatch, maintenance, workers
from service.store.outages import Sources
from service.store.runs import Run
from service.store.schema import WAITING, organizations, runs, turns
from service.store.turns import MADE_UP, SLOTTED, Turn
from service.text import plural


def explained(
    connection: sa.Connection,
    run: Run,
    conversation: Sequence[Turn],
    settings: ExecutionSettings,
    clock: Clock,
    *,
    for_operator: bool = False,
) -> list[Turn]:
    """Return a run's turns; an open turn that waits has the reason in `failure`.

    Only the operator is shown which other organizations take the slots.
    """
    *ended, last = conversation
    if last.finished_at is None and last.failure is None:
        last = replace(last, failure=_reason(connection, run, last, settings, clock, for_operator=for_operator))
    return [*ended, last]


def _reason(
    connection: sa.Connection, run: Run, turn: Turn, settings: ExecutionSettings, clock: Clock, *, for_operator: bool
) -> str | None:
    if not run.is_restricted:
        sources = Sources(connection)
        if (source := sources.of(run.organization_id, turn.agent or run.agent)) is not None:
            return sources.outages[source].text if turn.status == "queued" else sources.outages[source].fact
    if turn.status != "queued" or turn.executor == MADE_UP:
        return None
    columns = (runs.c.id, runs.c.organization_id, runs.c.url, runs.c.branch, organizations.c.slug)
    under_way = connection.execute(
        sa.select(*columns)
        .join(turns, turns.c.run_id == runs.c.id)
        .join(organizations, organizations.c.id == runs.c.organization_id)
        .where(SLOTTED)
    ).all()
    if any(one.id == run.id for one in under_way):
        return None
    living = workers.heard_within(connection, int(settings.worker_ttl_s * SECOND_MICROS), clock)
    slots = sum(one.concurrency for one in living)
    pauses = maintenance.current(connection)
    if pauses.maintenance is not None:
        return f"maintenance: {pauses.maintenance}"
    if not living:
        return "no worker is running" + ("; start one: runwarden service worker" if for_operator else "")
    if not slots:
        if all(pauses.holds(one) for one in living):
            return "every worker is drained" + ("; start one: runwarden service worker" if for_operator else "")
        is_boxless = any(one.has_no_sandbox for one in living)
        return "no worker has a sandbox" if is_boxless else "the disk of every worker is nearly full"
    lane = next((one for one in under_way if (one.url, one.branch) == (run.url, run.branch)), None)
    if lane is not None:
        other = lane.id if for_operator or lane.organization_id == run.organization_id else "another run"
        return f"{other} is at work on the branch {run.branch}"
    takers = Counter(one.slug for one in under_way)
    mine = sum(one.organization_id == run.organization_id for one in under_way)
    if len(under_way) >= slots:
        by = ", ".join(f"{count} by {slug}" for slug, count in takers.most_common())
        by = by if for_operator else f"{mine} by this organization"
        return f"{'the only slot is' if slots == 1 else f'all {slots} slots are'} taken: {by}"
    share = dispatch.share_of(connection, slots, settings.organization_slots)
    if mine >= share:
        return f"the organization may use {plural(share, 'slot')} at a time, which other runs of it take"
    this = turns.alias()
    accepted = sa.select(this.c.accepted_at).where(this.c.run_id == turn.run_id, this.c.number == turn.number)
    mine_waiting = (WAITING, turns.c.organization_id == run.organization_id)
    earlier = sa.select(sa.func.count()).where(*mine_waiting, turns.c.accepted_at < accepted.scalar_subquery())
    count = connection.execute(earlier).scalar_one()
    return f"{plural(count, 'earlier turn')} of the organization {'waits' if count == 1 else 'wait'}" if count else None
