"""The command line: each command is imported when it is called, so that `--help` need not wait for a web framework."""

import gc
import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Final

import click

from service.errors import ServiceError

DATA_DIR_VARIABLE: Final = "RUNWARDEN_SERVICE_DATA_DIR"
_COMMANDS: Final = {
    "serve": ("service.cli.serve", "Run the service."),
    "worker": ("service.cli.serve", "Execute turns, for services started with --no-worker."),
    "maintenance": ("service.cli.maintenance", "Start no more turns until it ends; turns at work finish."),
    "migrate": ("service.cli.maintenance", "Make or upgrade the tables in the database."),
    "apply": ("service.cli.apply", "Set up organizations, tokens, hosts, repositories and agents from a file."),
    "schema": ("service.cli.apply", "Print the JSON Schema of a file, for the editor."),
    "org": ("service.cli.organizations", "Organizations."),
    "invitation": ("service.cli.invitations", "Invitations of members, and the states of their mails."),
    "member": ("service.cli.invitations", "Members, who may sign in on the page with their address."),
    "token": ("service.cli.organizations", "API tokens."),
    "offer": ("service.cli.organizations", "Offer codes."),
    "host": ("service.cli.code_hosts", "Connected code hosts."),
    "repository": ("service.cli.code_hosts", "Configured repositories."),
    "agent": ("service.cli.agents", "Agents."),
    "run": ("service.cli.runs", "The log or the diff of a run."),
    "trigger": ("service.cli.code_hosts", "Rules that let pull requests start runs, and the started runs."),
    "events": ("service.cli.events", "Events that are sent to endpoints of organizations."),
    "usage": ("service.cli.audit", "The agents' use of their models, and its cost."),
    "prune": ("service.cli.maintenance", "Remove old logs, diffs and queue entries; runs stay."),
    "backup": ("service.cli.maintenance", "Write the whole service into one file, even while it runs."),
    "restore": ("service.cli.maintenance", "Restore a service that is stopped from such a file."),
    "audit": ("service.cli.audit", "Who administered what, and when."),
    "status": ("service.cli.status", "Show sandbox, workers and queue."),
}
_EXAMPLES: Final[Mapping[str, Sequence[str]]] = {
    "": ("apply setup.toml", "status", "token create --org acme --scope admin"),
    "serve": ("serve --data-dir /srv/runwarden --port 8080", "serve --port 0 --lab"),
    "worker": ("worker --database postgresql://runner@db/runwarden --workers 4", "worker --drain"),
    "maintenance": ("maintenance 'New disks until 14:00.'", "maintenance --end"),
    "apply": ("apply setup.toml", "apply agents.toml --elsewhere"),
    "org create": ("org create 'Acme Inc.' --slug acme --entitlement ServiceAPI",),
    "org budget": ("org budget acme --day-usd 100 --day-tokens 50000000",),
    "invitation send": ("invitation send ada@example.com --org acme --role developer",),
    "member set": ("member set ada@example.com --org acme --role viewer",),
    "invitation retry": ("invitation retry", "invitation retry inv_01J"),
    "token create": ("token create --org acme --scope admin --alias ci --duration 90d",),
    "host connect": (
        "host connect --org acme --platform github --token-env GITHUB_TOKEN",
        "host connect --org acme --platform gitlab --probe git --clone-url '/srv/git/{path}.git'",
    ),
    "repository add": (
        "repository add api --org acme --platform github --path acme/api --protect 'release/*'",
        "repository add api --org acme --platform github --path acme/api --webhook-secret-env ACME_HOOK_SECRET",
    ),
    "agent": ("agent add claude --preset claude-code", "agent check claude"),
    "agent add": (
        "agent add tidy --argv 'my-agent --task={instructions}' --timeout-s 900",
        'agent add claude --preset claude-code --model \'{ provider = "anthropic", key_env = "ANTHROPIC_API_KEY" }\'',
    ),
    "trigger": ("trigger log --org acme", "trigger log --waiting"),
    "trigger log": ("trigger log --org acme --limit 20", "trigger log --waiting --json"),
    "events list": ("events list --org acme --state 'given up'",),
    "events replay": ("events replay evt_01J evt_01K",),
    "events endpoints add": (
        "events endpoints add https://hooks.acme.example/runs --org acme --type run.ended",
        "events endpoints add http://10.1.2.3:8080/ --org acme --allow-private 10.1.2.3",
    ),
    "run": ("run run_01J --log", "run cancel run_01J", "run cancel --org acme --status queued"),
    "run list": ("run list --org acme --status working", "run list --limit 1000 -o csv"),
    "run show": ("run run_01J --diff", "run show run_01J --log --turn 2"),
    "usage": ("usage --from 2026-01-01 --by agent", "usage --org acme -o csv"),
    "prune": ("prune --older-than 90d --dry-run",),
    "backup": ("backup /backup/runwarden.tar.gz",),
    "restore": ("restore /backup/runwarden.tar.gz --data-dir /srv/runwarden",),
    "audit list": ("audit list --since 7d --action token", "audit list --org acme -o ndjson"),
}
"""Command name to example lines, without the leading `runwarden service`: for commands with a terse usage line."""

_AS_JSON: Final = "service.cli.as_json"


class _LazyGroup(click.Group):
    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(_COMMANDS[cmd_name][0]), cmd_name)
        if not gc.isenabled():
            # Imported modules stay until the process exits.
            gc.freeze()
            gc.enable()
        return _with_examples(command, cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_AS_JSON] = "--json" in args or "json" in args or "-ojson" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if not ctx.meta[_AS_JSON]:
                raise
            from service.cli.output import fail  # its libraries are slow to import

            fail(error.format_message(), as_json=True)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.command(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--data-dir", type=click.Path(file_okay=False), help="The service's data folder, for any command.")
@click.option("--json", "as_json", is_flag=True, hidden=True)
@click.option("-o", "--output", "form", type=click.Choice(["table", "json", "ndjson", "csv"]), hidden=True)
def main(data_dir: str | None, *, as_json: bool, form: str | None) -> None:  # noqa: ARG001 — service/cli/output.py reads it from the context
    """Run and administer the self-hosted code-review agent service."""
    if os.environ.get("RUNWARDEN_SERVICE_ENVIRONMENT"):
        from service.cli.environment import EnvironmentFile

        click.get_current_context().obj = file = EnvironmentFile()
        try:
            file.load()
        except ServiceError as error:
            raise click.UsageError(str(error)) from error
    if data_dir is not None:
        # Every command has the option itself; this is its default.
        os.environ[DATA_DIR_VARIABLE] = data_dir


def _with_examples(command: click.Command, name: str = "") -> click.Command:
    """Let the help of a command and its subcommands end with their examples."""
    if shown := _EXAMPLES.get(name):
        # \b keeps click from joining the lines.
        command.epilog = "\b\nExamples:\n" + "\n".join(f"  runwarden service {line}" for line in shown)
    for below, subcommand in getattr(command, "commands", {}).items():
        _with_examples(subcommand, f"{name} {below}")
    return command


_with_examples(main)
