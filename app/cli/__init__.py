"""The command line: the console's facts and actions for scripts."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import click

from app.cli.context import Invocation
from app.cli.options import closest_word, global_options, output_options, refuse_format, write_examples
from app.version import VERSION_LINE, __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS: Final = {
    "console": ("app.cli.programs.console:console", "Open the console."),
    "web": ("app.cli.programs.web:web", "Open the console in a browser on this machine."),
    "demo": ("app.cli.programs.console:demo", "Try it: a service, repositories, runs and the console."),
    "serve": ("app.cli.programs.service:serve", "Run the self-hosted service."),
    "service": ("app.cli.programs.service:service", "Administer a self-hosted service's data folder."),
    "runs": (
        "app.cli.runs:runs",
        "List, show, start, continue, retry, wait for and export runs, and take over what they did.",
    ),
    "agents": ("app.cli.writes.agents:agents", "Start named agents."),
    "health": ("app.cli.health:health", "Ask how the code hosts are, as a monitoring plugin."),
    "orgs": ("app.cli.writes.orgs:orgs", "Create, import and list partner organizations."),
    "gitlab": ("app.cli.writes.orgs:gitlab", "Onboard GitLab projects."),
    "actions": ("app.cli.actions:actions", "List, export, show and resolve the writes sent from here."),
    "watch": ("app.cli.programs.watch:watch", "Watch without a screen, and carry out the automations."),
    "automations": (
        "app.cli.automations:automations",
        "List, check, pause and approve what `runwarden watch` carries out.",
    ),
    "inbox": ("app.cli.inbox:inbox", "List what happened and is not dealt with, and say that it is."),
    "notify": ("app.cli.notify:notify", "Try the routes of notifications, list what they told, and acknowledge it."),
    "backup": ("app.cli.backup:backup", "Copy the ledgers and the automations' state."),
    "config": ("app.cli.config:config", "Show, check, create, edit or change the configuration file."),
    "completion": ("app.cli.completion:completion", "Complete commands, options and runs in your shell."),
    "man": ("app.cli.manual:man", "Print a manual page, or install them all."),
    "profiles": ("app.cli.profiles:profiles", "List the configured services."),
    "token": ("app.cli.profiles:token", "Check the API token."),
}
"""The module of each command, and its line in the help; only the called one is imported."""


class LazyGroup(click.Group):
    """The root group: imports a command only when it is called."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        """All names, in the order of the documentation."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        if ctx.resilient_parsing:
            from app.cli.completion import suggest

            suggest(cmd_name, command)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """End with the examples."""
        write_examples(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
        """Complete the commands' names without importing the commands."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        from click.shell_completion import CompletionItem

        return [CompletionItem(name, help=said) for name, (_, said) in COMMANDS.items() if name.startswith(incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is refused with a suggestion."""
        if args[0] not in COMMANDS and not ctx.resilient_parsing and (meant := closest_word(args[0], COMMANDS)):
            raise click.UsageError(f"No such command {args[0]!r}. Did you mean {meant}?", ctx)
        return super().resolve_command(ctx, args)


def _open_console(ctx: click.Context) -> Any:
    if ctx.invoked_subcommand is not None:
        return None
    refuse_format(ctx)
    from app.cli.programs.console import open_console

    return open_console(ctx.ensure_object(Invocation))


root = LazyGroup(
    name="runwarden",
    invoke_without_command=True,
    callback=click.pass_context(_open_console),
    params=[*global_options(hidden=False), *output_options()],
    help="Watches a code-review agent service: its runs, the health of its code hosts, and the work you give it.\n\n"
    "Without a command the console opens; without a terminal a snapshot is printed. To try it with nothing to "
    "configure: runwarden demo\n\nThe options below work before and after any command's name.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
click.version_option(__version__, "-V", "--version", message=VERSION_LINE)(root)
