"""The command line: the console's facts and actions for scripts."""

from importlib import import_module
from typing import Any, Final

import click

from app.cli.context import Invocation
from app.cli.options import global_options
from app.version import __version__

COMMANDS: Final = {
    "console": "app.cli.console:console",
    "web": "app.cli.web:web",
    "demo": "app.cli.console:demo",
    "serve": "app.cli.service:serve",
    "service": "app.cli.service:service",
    "runs": "app.cli.runs:runs",
    "agents": "app.cli.agents:agents",
    "health": "app.cli.health:health",
    "orgs": "app.cli.orgs:orgs",
    "gitlab": "app.cli.orgs:gitlab",
    "actions": "app.cli.actions:actions",
    "watch": "app.cli.watch:watch",
    "automations": "app.cli.automations:automations",
    "inbox": "app.cli.inbox:inbox",
    "notify": "app.cli.notify:notify",
    "backup": "app.cli.backup:backup",
    "config": "app.cli.config:config",
    "profiles": "app.cli.profiles:profiles",
    "token": "app.cli.profiles:token",
}
"""Where each command lives; only the one that is called is imported."""


class LazyGroup(click.Group):
    """The root group: imports a command only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 — click's signature
        """All names, in the order of the documentation."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 — as above
        """The command, imported; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command = getattr(import_module(module), attribute)
        return command if isinstance(command, click.Command) else None


def _open_console(ctx: click.Context) -> Any:
    if ctx.invoked_subcommand is not None:
        return None
    from app.cli.console import open_console

    return open_console(ctx.ensure_object(Invocation))


root = LazyGroup(
    name="runwarden",
    invoke_without_command=True,
    callback=click.pass_context(_open_console),
    params=list(global_options(hidden=False)),
    help="Watches a code-review agent service: its runs, the health of its code hosts, and the work you give it.\n\n"
    "Without a command the console opens; without a terminal a snapshot is printed. To try it with nothing to "
    "configure: runwarden demo\n\nThe options below work before and after any command's name.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
click.version_option(__version__, prog_name="runwarden")(root)
