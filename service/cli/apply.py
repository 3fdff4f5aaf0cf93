"""`apply` and `status`: the setup of a service, and its current state."""

import json
import os
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Final

import click
import sqlalchemy as sa
from pydantic import ValidationError

from service.cli.output import AdminContext, admin_command, elsewhere_option, fields
from service.clock import SECOND_MICROS, now_micros, rfc3339
from service.errors import first_fault
from service.execution.commits import check_signing
from service.execution.git import GitCommandError
from service.execution.sandbox import find
from service.hosts import rotation
from service.settings import Settings
from service.setup import Setup, SetupError, apply_setup
from service.store import endings, events, outages, postings, turns, workers
from service.store.schema import mails, runs, unsent
from service.text import one_line, plural

_ACTIONS: Final = {"agent": "agent.add", "host": "host.connect", "offer": "offer.add", "repository": "repository.add"}
"""The name of a document's entry in the audit trail."""
_UNCONNECTED: Final = "  on no connected host of its platform: it is used without a token, and no results are posted"
_MOST_REFUSED: Final = 20
"""The postings that were given up, the latest, which `status` lists."""


@click.command("apply")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@elsewhere_option
@admin_command
def apply(admin: AdminContext, file: Path, *, elsewhere: bool) -> None:
    """Apply FILE (TOML, JSON when it ends in .json, '-' for TOML on standard input); applying again changes nothing."""
    from_stdin = str(file) == "-"
    raw = sys.stdin.buffer.read() if from_stdin else file.read_bytes()
    try:
        document = json.loads(raw) if file.suffix == ".json" else tomllib.loads(raw.decode("utf-8"))
    except ValueError as error:
        raise SetupError(f"{file}: {error}") from error
    try:
        setup = Setup.model_validate(document)
    except ValidationError as error:
        raise SetupError(f"{file}: {first_fault(error, document)}") from error
    with admin.change("apply", create=True) as change:
        base = Path.cwd() if from_stdin else file.absolute().parent
        made = apply_setup(change.connection, setup, base, now_micros(), None if elsewhere else admin.folder.root)
        change.record("apply")
        shown = change.connection.engine.url.render_as_string(hide_password=True)
        acts = [("organization.create", one["id"], one["id"]) for one in made["organizations"] if one["created"]]
        for one in made["organizations"]:
            acts += [("token.create", token["id"], one["id"]) for token in one["tokens"] if token["value"] is not None]
        done = [one for one in made["applied"] if one["outcome"] != "unchanged"]
        acts += [(_ACTIONS[one["kind"]], one["name"], one["organization"]) for one in done]
        change.record_each(acts)
    # Those of agents are checked with them.
    secrets = {host.token_env for one in setup.organizations for host in one.hosts}
    secrets |= {each.webhook_secret_env for one in setup.organizations for each in one.repositories}
    unset = [] if elsewhere else sorted(name for name in secrets if name and not os.environ.get(name))
    made |= {"unset_variables": unset, "data_dir": str(admin.folder.root), "outbox": str(admin.folder.outbox)}
    made["database"] = shown
    slugs = {one["id"]: one["slug"] for one in made["organizations"]}
    owned = defaultdict(list)
    for one in made["applied"]:
        if one["kind"] in {"host", "repository"}:
            owned[one["organization"]].append(one)
    lines = []
    for organization in made["organizations"]:
        lines.append(f"{organization['slug']}  {'created' if organization['created'] else 'kept'}")
        lines += [f"  it differs from the file, and stays so; to change it: {one}" for one in organization["differs"]]
        lines += [f"  token {one['alias']}: {one['value'] or 'kept'}" for one in organization["tokens"]]
        urls = {
            f"{one['platform']}:{one['path']}": f"  {one['url']}{_UNCONNECTED if one['connected'] is False else ''}"
            for one in organization["repositories"]
        }
        lines += [
            f"  {one['kind']} {one['name']}  {one['outcome']}{urls.get(one['name'], '')}"
            for one in owned[organization["id"]]
        ]
    for one in made["applied"]:
        if one["kind"] in {"agent", "offer"}:
            owner = one["organization"]
            of = "" if owner is None else f" of {slugs.get(owner, owner)}"
            lines.append(f"{one['kind']} {one['name']}{of}  {one['outcome']}")
    lines += [f"the variable {name} is not set here; the service needs it" for name in made["unset_variables"]]
    admin.show(made, [*lines, f"applied to the service in {made['data_dir']}, database {made['database']}"])


@click.command("schema")
@click.argument("file", type=click.Choice(["agents.toml", "service.toml"]))
def schema(file: str) -> None:
    """Print the JSON Schema of FILE, for the editor; agents.toml stands for any document of `apply`."""
    model = Settings if file == "service.toml" else Setup
    click.echo(json.dumps(model.model_json_schema(), indent=2))


@click.command("status")
@admin_command
def status(admin: AdminContext) -> None:
    """Show sandbox, limits, workers, runs, models that give no answer, keys that expire soon, and abandoned work."""
    settings = admin.folder.settings().execution
    with admin.database() as database, database.read() as connection:
        counted = connection.execute(sa.select(runs.c.status, sa.func.count()).group_by(runs.c.status))
        by_status: dict[str, int] = dict(counted.all())
        living = workers.heard_within(connection, int(settings.worker_ttl_s * SECOND_MICROS), now_micros)
        unsent_mails = unsent(connection, mails)
        ending = endings.soon(connection, now_micros())
        unrotated = rotation.faults(connection)
        refused = postings.refused(connection, _MOST_REFUSED)
        away = outages.Sources(connection).waiting(connection)
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
    names = "executor host pid concurrency at_work sandbox started_at seen_at"
    document = {
        "data_dir": str(admin.folder.root),
        "database": address,
        "sandbox": sandbox,
        "signing": signing,
        "limits": limits,
        "workers": [fields(one, names) for one in living],
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
        when = f"ends within {plural(key.days, 'day')}" if key.days else "has ended"
        of = f" of {key.organization}" if key.organization else ""
        lines.append(f"{when}: {key.kind.replace('_', ' ')} {one_line(key.name)}{of}, on {rfc3339(key.ends_at)[:10]}")
    lines += unrotated
    lines += [f"receives no events: endpoint {one.id} of {one.organization_id}, {one.url}" for one in disabled]
    lines += [f"not posted: {one.kind} of {one.run_id}: {one_line(one.failure or '')}" for one in refused]
    admin.show(document, lines)
