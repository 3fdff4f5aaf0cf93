"""`status`: the current state of a service."""

from typing import Final

import click

from service.cli.output import AdminCommand, AdminContext, fields_of
from service.clock import now_micros, rfc3339
from service.execution.commits import check_signing
from service.execution.sandbox import find
from service.git import GitCommandError
from service.hosts import rotation
from service.store import endings, events, outages, postings, runs, turns, workers
from service.store.rows import unsent
from service.store.schema import invitations
from service.text import one_line, plural

_LISTED_POSTINGS: Final = 20


@click.command("status", cls=AdminCommand)
def status(admin: AdminContext) -> None:
    """Show sandbox, limits, workers, runs, models that give no answer, keys that expire soon, and abandoned work."""
    settings = admin.folder.settings().execution
    with admin.database() as database, database.read() as connection:
        by_status = runs.counts_by_status(connection)
        living = workers.heard_within(connection, settings.worker_ttl_s, now_micros)
        unsent_mails = unsent(connection, invitations.c.mail)
        ending = endings.soon(connection, now_micros())
        unrotated = rotation.faults(connection)
        refused = postings.refused_postings(connection, _LISTED_POSTINGS)
        away = outages.ProviderOutages(connection).waiting(connection)
        disabled = [row for row in events.endpoints(connection) if row.disabled_at is not None]
        taken = len(turns.dispatched_turns(connection))
        pauses = workers.pauses(connection)
        address = database.shown
    at_work = sum(worker.at_work for worker in living)
    slots = sum(worker.concurrency for worker in living)
    is_safe = not (slots or at_work)
    sandbox = str(find(settings))
    limits = settings.agent.model_dump()
    signing = None if settings.signing is None else "works"
    try:
        if settings.signing is not None:
            check_signing(settings.signing.ssh_key)
    except GitCommandError as error:
        signing = str(error)
    document = {
        "data_dir": str(admin.folder.root),
        "database": address,
        "sandbox": sandbox,
        "signing": signing,
        "limits": limits,
        "workers": [
            fields_of(worker, "executor", "host", "pid", "concurrency", "at_work", "sandbox", "started_at", "seen_at")
            for worker in living
        ],
        "slots": {"all": slots, "taken": taken, "at_work": at_work},
        "maintenance": pauses.maintenance,
        "safe_to_stop": is_safe,
        "runs": by_status,
        "mails": unsent_mails,
        "ending_keys": [
            fields_of(row, "kind", "organization", "name", "ends_at")
            | {"organization": row.organization or None, "within_days": row.days}
            for row in ending
        ],
        "token_faults": unrotated,
        "refused_postings": [row.document() | {"run_id": row.run_id} for row in refused],
        "disabled_endpoints": [row.id for row in disabled],
        "model_outages": [{"provider": row.shown, "since": rfc3339(row.since), "turns": n} for row, n in away],
    }
    facts: list[tuple[str, object]] = [
        ("data folder", admin.folder.root),
        ("database", address),
        ("sandbox here", sandbox),
        *([("signing here", signing)] if signing else []),
        ("limits here", ", ".join(f"{key} {value:.10g}" for key, value in limits.items())),
        ("workers", len(living)),
        ("slots", f"{taken} of {slots} taken, {plural(at_work, 'turn')} at work"),
    ]
    if pauses.maintenance is not None:
        stop = "yes: nothing is at work" if is_safe else "no: turns are still at work"
        facts += [("maintenance", pauses.maintenance), ("safe to stop", stop)]
    lines = [f"{head:14}{value}" for head, value in facts]
    for worker in living:
        idle = "it needs a sandbox" if worker.has_no_sandbox else "its disk is nearly full"
        if pauses.holds(worker):
            idle = "drained, can be stopped"
            if worker.at_work:
                idle = f"drained, {plural(worker.at_work, 'turn')} at work"
        slots_shown = f"{worker.concurrency} at a time" if worker.concurrency else f"no turns: {idle}"
        lines.append(f"  {worker.host} pid {worker.pid}, {slots_shown}, sandbox: {worker.sandbox}")
    lines += [f"{status:14}{number}" for status, number in sorted(by_status.items())]
    lines += [f"{f'mails {state}':14}{number}" for state, number in unsent_mails.items() if number]
    lines += [f"{row.shown} gives no answer since {rfc3339(row.since)}: {plural(n, 'turn')} wait" for row, n in away]
    for key in ending:
        when = f"expires within {plural(key.days, 'day')}" if key.days else "has expired"
        of = f" of {key.organization}" if key.organization else ""
        lines.append(f"{when}: {key.kind.replace('_', ' ')} {one_line(key.name)}{of}, on {rfc3339(key.ends_at)[:10]}")
    lines += unrotated
    lines += [f"receives no events: endpoint {row.id} of {row.organization_id}, {row.url}" for row in disabled]
    lines += [f"not posted: {row.kind} of {row.run_id}: {one_line(row.failure or '')}" for row in refused]
    admin.show(document, *lines)
