"""Examples of commands, without `runwarden`: `--help` ends with them, and a test parses every one."""

from collections.abc import Mapping, Sequence
from typing import Final

EXAMPLES: Final[Mapping[str, Sequence[str]]] = {
    "": ("", "demo", "runs list --status failed --from -1d"),
    "demo": ("demo --keep --folder ~/runwarden-demo",),
    "runs list": (
        "runs list --status failed --from -24h",
        "runs list -R 'acme/*' --branch '!main' --json",
        "runs list --search 'is:stuck' --cached",
    ),
    "runs export": ("runs export --from -30d -o csv --out runs.csv",),
    "runs start": (
        "runs start -R acme/api 'Fix the flaky login test.'",
        "runs start -R acme/api -f task.md --wait --timeout 30m",
    ),
    "runs continue": ("runs continue run_01J 'Add a test for it.'",),
    "runs retry": (
        "runs retry run_01J --wait",
        "runs list --status failed --json | jq -r '.runs[].run_id' | xargs runwarden runs retry --yes",
    ),
    "runs cancel": ("runs cancel run_01J", "runs cancel --status queued -R acme/api --dry-run"),
    "runs wait": ("runs wait run_01J run_01K --timeout 1h", "runs wait run_01J run_01K --fail-fast"),
    "runs events": ("runs events --follow --since now",),
    "runs log": (
        "runs log run_01J --follow",
        "runs log run_01J --turn 1 --all --raw",
        "runs log run_01J --follow --json",
    ),
    "runs diff": (
        "runs diff run_01J --stat",
        "runs diff run_01J --turn 2 | git apply",
        "runs diff run_01J --color | less -R",
    ),
    "runs apply": ("runs apply run_01J -C ~/src/api",),
    "agents start": (
        "agents start security-review -R acme/api --input depth=full --wait",
        "agents start claude -R acme/api 'Fix the flaky login test.'",
    ),
    "orgs create": ("orgs create ada@example.com --offer-code PARTNER-1",),
    "orgs import": ("orgs import partners.csv --dry-run", "orgs import partners.csv"),
    "actions list": ("actions list --state unknown", "actions list --from -7d --actor ada --json"),
    "actions export": ("actions export --from -30d --out audit.ndjson",),
    "actions resolve": ("actions resolve act_01J --created run_01K", "actions resolve act_01J --not-created"),
    "watch": ("watch --metrics 9464", "watch --once"),
    "automations check": ("automations check 'nightly review' --replay 30d",),
    "automations log": ("automations log --outcome failed", "automations log 'nightly review' --json"),
    "automations run": ("automations run 'second chance' --run run_01J",),
    "inbox": ("inbox list", "inbox done failed:acme/api"),
    "inbox snooze": ("inbox snooze failed:acme/api --for 2h",),
    "backup": ("backup /backup/runwarden", "backup /backup/runwarden --all-profiles"),
    "config set": ("config set poll.runs_s 30", "config set profiles.acme.read_only --unset"),
    "doctor": ("doctor", "doctor --json"),
    "completion": ("completion --install", "completion fish --install"),
}
