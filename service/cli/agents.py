"""`agent`: the commands that execute turns."""

import shlex
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from service.agents.options import DEFAULT_NAME, DEFAULT_TIMEOUT_S, REVIEWER, Agent
from service.agents.programs import missing as missing_parts
from service.cli.output import INLINE, AdminContext, AdminGroup, Row, elsewhere_option, owner_of, require
from service.clock import now_micros
from service.execution.rehearsal import Rehearsal, scratch_repository
from service.execution.sandbox import find
from service.settings import DataFolder
from service.setup import AgentEntry, put_agent
from service.store import agents

agent = AdminGroup("agent", help="Agents.")
_QUESTION: Final = "This is a check of your installation. Answer with one short sentence, and change no file."
_PROGRESS_EVERY_S: Final = 5.0
_SHOWN_CHARACTERS: Final = 3000


def _agent(row: Agent, owner: str | None) -> Row:
    document: dict[str, object] = {
        "name": row.name,
        "argv": row.argv,
        "timeout_s": row.timeout_s,
        "network": row.network,
        "environment": row.environment,
        "organization_id": owner,
    }
    document |= row.options.model_dump(mode="json", exclude_defaults=True)
    command = " ".join(filter(None, (row.options.preset, shlex.join(row.argv))))
    return document, f"{row.name}  {owner or 'everyone'}  {row.timeout_s:g} s  {command}"


@agent.command("add")
@click.argument("name")
@click.option("--preset", help="A program that the service knows how to call, such as claude-code.")
@click.option("--description", help="Its purpose, in a line.")
@click.option("--prompt", help="Its instructions; {inputs.NAME} is replaced by the caller's input.")
@click.option("--inputs", type=INLINE, help='The inputs that it takes: { depth = { type = "integer", default = 2 } }.')
@click.option("--argv", default="", help="The command, quoted as in a shell; {python} is this interpreter.")
@click.option("--org", "organization", help="The one organization it serves; all of them if left out.")
@click.option("--timeout-s", type=float, default=DEFAULT_TIMEOUT_S, show_default=True)
@click.option("--idle-timeout-s", type=float, help="Stops it after this long without output or computing.")
@click.option("--network/--no-network", default=False, show_default=True)
@click.option("--egress", multiple=True, help="A host that it may reach over TLS; without one it reaches none.")
@click.option("--model", type=INLINE, help='How it reaches its model: { provider = "anthropic", key_env = "KEY" }.')
@click.option("--env", "environment", multiple=True, help="A variable of the service that the agent may see.")
@click.option("--on-completion", type=INLINE, help='The posts about it: { pull_request = "draft", status = true }.')
@click.option(
    "--change", type=INLINE, help="The limits of a turn's change: { files = 500, bytes = 10485760, protected = […] }."
)
@click.option("--readable", multiple=True, help="A file or folder of this machine that the sandbox shows.")
@click.option("--cache", type=int, help="The bytes that a folder kept from turn to turn may hold.")
@click.option("--session/--no-session", default=None, help="Keep its home folder for the later turns of a run.")
@click.option("--fallback", multiple=True, help="Agents that take over while its model is unavailable, in this order.")
@click.option("--fallback-after", help="Only for limits and outages longer than this, such as 15m.")
@click.option("--trust-repository", is_flag=True, help="Let it obey configuration that the repository holds.")
@elsewhere_option
def add(admin: AdminContext, argv: str, *, elsewhere: bool, **options: Any) -> None:
    """Configure an agent, or change an existing one."""
    try:
        words = shlex.split(argv)
    except ValueError as error:
        raise click.UsageError(f"--argv: {error}") from error
    options["egress"] = options["egress"] or None
    options = {name: value for name, value in options.items() if value is not None}
    entry = AgentEntry.model_validate({"argv": words, **options})
    with admin.change("agent.add", create=True) as change:
        row = put_agent(change.connection, entry, now_micros(), None if elsewhere else admin.folder.root)
        change.target, change.organization_id = row.name, row.organization_id
    admin.show(*_agent(row, entry.organization))


@agent.command("list")
def list_all(admin: AdminContext) -> None:
    """List agents; the reviewer is always there."""
    with admin.read() as connection:
        configured = agents.all_of(connection)
    if not any(row.organization_id is None and row.name == DEFAULT_NAME for row in configured):
        configured.insert(0, REVIEWER)
    admin.show_rows("agents", (_agent(row, row.organization_id) for row in configured))


@agent.command("check")
@click.argument("name")
@click.option("--org", "slug", help="The organization whose agent it is; the one for all if left out.")
@click.option("--timeout-s", type=click.FloatRange(1), default=30, show_default=True, help="How long it may take.")
def check(admin: AdminContext, name: str, slug: str | None, timeout_s: float) -> None:
    """Run an agent once on a scratch repository and report missing parts; this asks its model for one answer."""
    with admin.read() as connection:
        known = agents.by_name(connection, owner_of(connection, slug) or "", name)
    configured = require(known, "agent", name, "service agent list")
    settings = admin.folder.settings().execution
    sandbox = find(settings)
    faults = list(missing_parts(configured, admin.folder.root))
    faults += [sandbox.reason] if sandbox.is_missing else []
    document: dict[str, Any] = {"name": name, "missing": faults}
    if not faults:
        # A model that is down must not hold the check any longer.
        patience_s = min(timeout_s / 2, settings.agent.model_patience_s)
        limits = settings.agent.model_copy(update={"model_patience_s": patience_s})
        settings = settings.model_copy(update={"agent": limits})
        tried = replace(configured, timeout_s=min(timeout_s, configured.timeout_s))
        started = reported_at = time.monotonic()

        def report() -> None:
            nonlocal reported_at
            now = time.monotonic()
            if now >= reported_at + _PROGRESS_EVERY_S:
                reported_at = now
                click.echo(f"{tried.name} has been at work for {now - started:.0f} s", err=True)

        click.echo(f"asking {tried.name} one question; this takes at most {tried.timeout_s:g} s", err=True)
        with tempfile.TemporaryDirectory(prefix="runwarden-check-") as scratch:
            folder = DataFolder(Path(scratch))
            folder.create()
            url = scratch_repository(folder.root / "scratch.git", settings)
            done = Rehearsal(folder, settings, sandbox, url).turn(tried, _QUESTION, check=report)
        document |= {
            "failure": done.failure,
            "reason": done.reason,
            "summary": done.result.summary,
            "tokens": sum(usage.tokens for _, usage, _ in done.used),
            "log": done.log[-_SHOWN_CHARACTERS:],
        }
        faults = [document["failure"]] if document["failure"] else []
    lines = [f"{name}: {fault}" for fault in faults] or [f"{name}: works; it says: {document['summary'] or 'nothing'}"]
    admin.show(document, *lines, *(document.get("log", "").splitlines() if faults else ()))
    if faults:
        raise SystemExit(1)


@agent.command("remove")
@click.argument("name")
@click.option("--org", "slug", help="The organization whose agent it is; the one for all if left out.")
def remove(admin: AdminContext, name: str, slug: str | None) -> None:
    """Remove an agent; runs in progress are not affected. Once your `reviewer` is removed, the built-in one is back."""
    with admin.change("agent.remove") as change:
        change.organization_id = owner_of(change.connection, slug)
        is_removed = agents.remove(change.connection, name, change.organization_id)
        whose = "agent for everyone" if slug is None else f"agent of {slug}"
        require(is_removed, whose, name, "service agent list")
        change.target = name
    admin.show({"name": name, "state": "removed"}, f"{name} removed")
