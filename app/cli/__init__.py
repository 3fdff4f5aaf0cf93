"""The command line: the console's facts and actions for scripts."""

from typing import Any, Final

import click

from app.cli.context import Invocation
from app.cli.options import CommandGroup, global_options, output_options, refuse_format
from app.version import VERSION_LINE, __version__

COMMANDS: Final = {
    "console": ("app.cli.programs.console:console", "Open the console."),
    "web": ("app.cli.programs.web:web", "Open the console in a browser on this machine."),
    "mcp": ("app.cli.programs.mcp:mcp", "Serve programs over MCP on stdin and stdout: facts, and proposals."),
    "demo": ("app.cli.programs.console:demo", "Try it: a service, repositories, runs and the console."),
    "serve": ("app.cli.programs.service:serve", "Run the self-hosted service."),
    "service": ("app.cli.programs.service:service", "Administer a self-hosted service's data folder."),
    "runs": (
        "app.cli.runs:runs",
        "List, start, continue, retry and wait for runs; show and apply what they did.",
    ),
    "agents": ("app.cli.agents:agents", "List and start named agents."),
    "health": ("app.cli.health:health", "Check the code hosts, as a monitoring plugin."),
    "orgs": ("app.cli.orgs:orgs", "Create, import and list partner organizations."),
    "gitlab": ("app.cli.orgs:gitlab", "Onboard GitLab projects."),
    "actions": ("app.cli.actions:actions", "List, export, show and resolve writes sent from here."),
    "watch": ("app.cli.programs.watch:watch", "Watch without a screen, and carry out the automations."),
    "automations": (
        "app.cli.automations:automations",
        "List, check, pause and approve what `runwarden watch` carries out.",
    ),
    "inbox": ("app.cli.inbox:inbox", "List open items, and mark them as done."),
    "notify": ("app.cli.inbox:notify", "Test notification routes, list messages, and acknowledge them."),
    "backup": ("app.cli.config:backup", "Copy the ledgers and the automations' state."),
    "config": ("app.cli.config:config", "Show, check, create, edit or change the configuration file."),
    "completion": ("app.cli.completion:completion", "Complete commands, options and runs in your shell."),
    "man": ("app.cli.man:man", "Show the help of every command in a pager."),
    "profiles": ("app.cli.config:profiles", "List the configured services."),
    "token": ("app.cli.config:token", "Check the API token."),
}
"""The module of each command, and its line in the help; only the called one is imported."""


def _open_console(ctx: click.Context) -> Any:
    if ctx.invoked_subcommand is not None:
        return None
    refuse_format(ctx)
    from app.cli.programs.console import open_console

    return open_console(ctx.ensure_object(Invocation))


root = CommandGroup(
    elsewhere=COMMANDS,
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
