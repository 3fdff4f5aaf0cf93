"""The command line: each command is imported when it is called, so that `--help` need not wait for a web framework."""

import importlib
import os
from typing import Final

import click

_COMMANDS: Final = {
    "serve": ("service.cli.serve", "Run the service."),
    "worker": ("service.cli.serve", "Execute turns, for services started with --no-worker."),
    "migrate": ("service.cli.maintenance", "Make or upgrade the tables in the database."),
    "apply": ("service.cli.maintenance", "Set up organizations, tokens, hosts, repositories and agents from a file."),
    "org": ("service.cli.organizations", "Organizations."),
    "invitation": ("service.cli.invitations", "Invitations of administrators, and what became of their mails."),
    "token": ("service.cli.tokens", "API tokens."),
    "offer": ("service.cli.organizations", "Offer codes."),
    "host": ("service.cli.code_hosts", "Connected code hosts."),
    "repository": ("service.cli.code_hosts", "Configured repositories."),
    "agent": ("service.cli.agents", "Agents."),
    "run": ("service.cli.runs", "The log or the diff of a run."),
    "trigger": ("service.cli.triggers", "Rules by which pull requests start runs, and what they started."),
    "usage": ("service.cli.usage", "What agents used of their models, and what it cost."),
    "prune": ("service.cli.maintenance", "Remove old logs, diffs and queue entries; runs stay."),
    "backup": ("service.cli.backup", "Write all of the service into one file, also while it runs."),
    "restore": ("service.cli.backup", "Restore a service that is stopped from such a file."),
    "audit": ("service.cli.audit", "Who administered what, and when."),
    "status": ("service.cli.maintenance", "What is in force: sandbox, workers, queue."),
}

_AS_JSON: Final = "service.cli.as_json"


class _Lazy(click.Group):
    """A group that knows its commands by name and imports one when it is asked for."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(_COMMANDS[cmd_name][0]), cmd_name)
        from service.cli.examples import with_examples

        return with_examples(command, cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_AS_JSON] = "--json" in args or "json" in args or "-ojson" in args
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            if not ctx.meta[_AS_JSON]:
                raise
            from service.cli.output import fail

            fail(error.format_message(), as_json=True)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from service.cli.examples import with_examples

        with_examples(self)
        super().format_epilog(ctx, formatter)


@click.command(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--data-dir", type=click.Path(file_okay=False), help="The service's data folder, for any command.")
@click.option("--json", "as_json", is_flag=True, hidden=True)
@click.option("-o", "--output", "form", type=click.Choice(["table", "json", "ndjson", "csv"]), hidden=True)
def main(data_dir: str | None, *, as_json: bool, form: str | None) -> None:  # noqa: ARG001 — see `_format`
    """Run and administer the self-hosted code-review agent service."""
    if data_dir is not None:
        from service.cli.output import DATA_DIR_VARIABLE

        # Every command has the option itself; this is its default.
        os.environ[DATA_DIR_VARIABLE] = data_dir
