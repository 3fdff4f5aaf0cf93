"""`status`: the current state of a service."""

from typing import Final

import click

from service.cli.output import AdminContext, admin_command
from service.clock import SECOND_MICROS, now_micros, rfc3339
from service.execution.commits import check_signing
from service.execution.sandbox import find
from service.git import GitCommandError
from service.hosts import rotation
from service.store import endings, events, outages, postings, runs, turns, workers
from service.store.schema import invitations, unsent
from service.text import one_line, plural

_MOST_REFUSED: Final = 20
"""The postings that were given up, the latest, which `status` lists."""


@click.command("status")
@admin_command
def status(admin: AdminContext) -> None:
    """Show sandbox, limits, workers, runs, models that give no answer, keys that expire soon, and abandoned work."""
    settings = admin.folder.settings().execution
    with admin.database() as database, database.read() as connection:
        by_status = runs.counts_by_status(connection)
        living = workers.heard_within(connection, int(settings.worker_ttl_s * SECOND_MICROS), now_micros)
        unsent_mails = unsent(connection, invitations.c.mail)
        ending = endings.soon(connection, now_micros())
        unrotated = rotation.faults(connection)
        refused = postings.refused(connection, _MOST_REFUSED)
        away = outages.ProviderOutages(connection).waiting(connection)
        disabled = [one for one in events.endpoints(connection) if one.disabled_at is not None]
        taken = len(turns.dispatched(connection))
        pauses = workers.pauses(connection)
        address = database.shown
    at_work, slots = sum(one.at_work for one in living), sum(one.concurrency for one in living)
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
            {"executor": one.executor, "host": one.host, "pid": one.pid, "concurrency": one.concurrency}
            | {"at_work": one.at_work, "sandbox": one.sandbox}
            | {"started_at": rfc3339(one.started_at), "seen_at": rfc3339(one.seen_at)}
            for one in living
        ],
        "slots": {"all": slots, "taken": taken, "at_work": at_work},
        "maintenance": pauses.maintenance,
        "safe_to_stop": is_safe,
        "runs": by_status,
        "mails": unsent_mails,
        "ending_keys": [one.document() for one in ending],
        "token_faults": unrotated,
        "refused_postings": [one.document() | {"run_id": one.run_id} for one in refused],
        "disabled_endpoints": [one.id for one in disabled],
        "model_outages": [{"provider": one.shown, "since": rfc3339(one.since), "turns": n} for one, n in away],
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
    for one in living:
        idle = "it needs a sandbox" if one.has_no_sandbox else "its disk is nearly full"
        if pauses.holds(one):
            idle = f"drained, {plural(one.at_work, 'turn')} at work" if one.at_work else "drained, can be stopped"
        slots_shown = f"{one.concurrency} at a time" if one.concurrency else f"no turns: {idle}"
        lines.append(f"  {one.host} pid {one.pid}, {slots_shown}, sandbox: {one.sandbox}")
    lines += [f"{status:14}{number}" for status, number in sorted(by_status.items())]
    lines += [f"{f'mails {state}':14}{number}" for state, number in unsent_mails.items() if number]
    lines += [f"{one.shown} gives no answer since {rfc3339(one.since)}: {plural(n, 'turn')} wait" for one, n in away]
    for key in ending:
        when = f"expires within {plural(key.days, 'day')}" if key.days else "has expired"
        of = f" of {key.organization}" if key.organization else ""
        lines.append(f"{when}: {key.kind.replace('_', ' ')} {one_line(key.name)}{of}, on {rfc3339(key.ends_at)[:10]}")
    lines += unrotated
    lines += [f"receives no events: endpoint {one.id} of {one.organization_id}, {one.url}" for one in disabled]
    lines += [f"not posted: {one.kind} of {one.run_id}: {one_line(one.failure or '')}" for one in refused]
    admin.show(document, lines)
