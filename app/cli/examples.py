"""Examples of each command: `--help` and the manual pages end with them, and a test parses every one."""

from collections.abc import Mapping, Sequence
from typing import Final

EXAMPLES: Final[Mapping[str, Sequence[str]]] = {
    "": ("runwarden", "runwarden demo", "runwarden runs list --status failed --from -1d"),
    "console": ("runwarden console", "runwarden --profile staging console"),
    "web": ("runwarden web", "runwarden web --port 8000"),
    "demo": ("runwarden demo", "runwarden demo --keep --folder ~/runwarden-demo"),
    "serve": ("runwarden serve --data-dir /srv/runwarden --port 8080",),
    "service": ("runwarden service org create acme", "runwarden service apply service.toml"),
    "runs": ("runwarden runs list --active", "runwarden runs show run_01J"),
    "runs list": (
        "runwarden runs list --status failed --from -24h",
        "runwarden runs list -R 'acme/*' --branch '!main' --json",
        "runwarden runs list --search 'is:stuck' --cached",
    ),
    "runs export": ("runwarden runs export --from -30d -o csv --out runs.csv",),
    "runs show": ("runwarden runs show run_01J", "runwarden runs show run_01J --json"),
    "runs start": (
        "runwarden runs start -R acme/api 'Fix the flaky login test.'",
        "runwarden runs start -R acme/api -f task.md --wait --timeout 30m",
    ),
    "runs continue": ("runwarden runs continue run_01J 'Add a test for it.'",),
    "runs retry": (
        "runwarden runs retry run_01J --wait",
        "runwarden runs list --status failed --json | jq -r '.runs[].run_id' | xargs runwarden runs retry --yes",
    ),
    "runs wait": ("runwarden runs wait run_01J run_01K --timeout 1h",),
    "runs sync": ("runwarden runs sync --days 30",),
    "agents": ("runwarden agents start security-review -R acme/api",),
    "agents start": ("runwarden agents start security-review -R acme/api --input depth=full --wait",),
    "health": ("runwarden health", "runwarden health --json"),
    "orgs": ("runwarden orgs list", "runwarden orgs create ada@example.com"),
    "orgs create": ("runwarden orgs create ada@example.com --offer-code PARTNER-1",),
    "orgs list": ("runwarden orgs list -o csv",),
    "orgs import": ("runwarden orgs import partners.csv --dry-run", "runwarden orgs import partners.csv"),
    "gitlab": ("runwarden gitlab onboard platform/api",),
    "gitlab onboard": ("runwarden gitlab onboard platform/api",),
    "actions": ("runwarden actions list --state unknown",),
    "actions list": ("runwarden actions list --state unknown", "runwarden actions list --from -7d --actor ada --json"),
    "actions export": ("runwarden actions export --from -30d --out audit.ndjson",),
    "actions show": ("runwarden actions show act_01J --candidates",),
    "actions resolve": (
        "runwarden actions resolve act_01J --created run_01K",
        "runwarden actions resolve act_01J --not-created",
    ),
    "watch": ("runwarden watch --metrics 9464", "runwarden watch --once"),
    "automations": ("runwarden automations check --replay 30d",),
    "automations list": ("runwarden automations list",),
    "automations check": ("runwarden automations check", "runwarden automations check 'nightly review' --replay 30d"),
    "automations log": (
        "runwarden automations log --outcome failed",
        "runwarden automations log 'nightly review' --json",
    ),
    "automations run": ("runwarden automations run 'second chance' --run run_01J",),
    "automations pause": ("runwarden automations pause 'nightly review'",),
    "automations resume": ("runwarden automations resume 'nightly review'",),
    "automations approve": ("runwarden automations approve 42",),
    "inbox": ("runwarden inbox list", "runwarden inbox done failed:acme/api"),
    "inbox list": ("runwarden inbox list --json",),
    "inbox done": ("runwarden inbox done failed:acme/api",),
    "inbox snooze": ("runwarden inbox snooze failed:acme/api --for 2h",),
    "inbox mute": ("runwarden inbox mute failed:acme/sandbox",),
    "inbox undo": ("runwarden inbox undo",),
    "notify": ("runwarden notify test oncall", "runwarden notify ack 12"),
    "notify test": ("runwarden notify test", "runwarden notify test oncall"),
    "notify log": ("runwarden notify log", "runwarden notify log --json"),
    "notify ack": ("runwarden notify ack 12",),
    "notify silences": ("runwarden notify silences add 'failed:acme/*' --for 2h",),
    "notify silences list": ("runwarden notify silences list",),
    "notify silences add": ("runwarden notify silences add host:github --for 1d --reason 'maintenance'",),
    "notify silences end": ("runwarden notify silences end 3",),
    "backup": ("runwarden backup /backup/runwarden", "runwarden backup /backup/runwarden --all-profiles"),
    "config": ("runwarden config init", "runwarden config check"),
    "config path": ('"$EDITOR" "$(runwarden config path)"',),
    "config check": ("runwarden config check", "runwarden --config staging.toml config check"),
    "config init": ("runwarden config init",),
    "config keys": ("runwarden config keys",),
    "completion": ("runwarden completion --install", "runwarden completion fish --install"),
    "man": ("runwarden man --install", "runwarden man runs | man -l -"),
    "profiles": ("runwarden profiles list",),
    "profiles list": ("runwarden profiles list --json",),
    "token": ("runwarden token check",),
    "token check": ("runwarden --profile staging token check",),
}
"""By the command's name, without the program's; as people type them, one a line."""


def examples(command_path: str) -> Sequence[str]:
    """The examples of a command, such as `runwarden runs list`."""
    return EXAMPLES.get(command_path.partition(" ")[2], ())
