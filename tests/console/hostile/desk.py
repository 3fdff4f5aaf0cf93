"""A desk where everything is hostile that is not the service's: the configuration's names, the ledger, the files."""

import csv
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from app.api.requests import (
    ContinueRun,
    CreateOrganization,
    OnboardProject,
    StartAgent,
    StartRun,
    WriteRequest,
    as_json,
)
from app.config import LEDGER_FILE, Profile, Settings, data_folder
from app.config.token import EnvToken
from storage.ledger import Ledger
from storage.records import ActionFailure, Repository
from tests.console.hostile.payloads import SEQUENCES

TITLES = ("".join(SEQUENCES[:12]), "".join(SEQUENCES[12:20]), *SEQUENCES[:12], *SEQUENCES[19:22])
"""Names as a configuration copied in good faith may have them."""
PROFILE = f"{TITLES[0]}profile"
TELLING = "import json, sys; print(json.dumps(sys.argv[2:]), file=open(sys.argv[1], 'a'))"
"""A person's own way to be told: it keeps its arguments."""
TOLD = ("{title}", "{body}", "{profile}", "{run_id}", "{repository}", "{branch}", "{status}")


def configuration(base_url: str, told: Path) -> str:
    """A file of the configuration with hostile names, for a desktop and a command of one's own."""
    command = [sys.executable, "-c", TELLING, str(told), *TOLD]
    parts = [
        f"default_profile = {_toml(PROFILE)}",
        "[notify]\nbell = false\ndesktop = true\nhold_s = 0",
        f"command = [{', '.join(map(_toml, command))}]",
        *(f"[profiles.{_toml(name)}]\nbase_url = {_toml(base_url)}" for name in (PROFILE, *TITLES[1:4])),
    ]
    for number, title in enumerate(TITLES):
        name = _toml(f"{title}{number}")
        parts.append(f'[[views]]\nname = {name}\nquery = "branch:main"')
        parts.append(f"[[templates]]\nname = {name}\ninstructions = {_toml(title + 'do')}")
        parts.append(f'[[commands]]\nname = {name}\nargv = [{_toml(title + "/nowhere")}, "{{branch}}"]\nconfirm = true')
    return "\n".join([*parts, '[keys]\n"runs.export" = "x"\n"run.copy_json" = "Y"'])


def ledger_file(base_url: str, folder: Path) -> Path:
    """Where the hostile profile's ledger lies."""
    profile = Profile(PROFILE, base_url, EnvToken())
    return data_folder(Settings(data_dir=folder, profiles=(profile,)), profile) / LEDGER_FILE


async def write_ledger(path: Path) -> list[str]:
    """Writes of each kind and outcome, hostile in every field that others fill in; the ids, oldest first."""
    path.parent.mkdir(parents=True, mode=0o700)
    async with await Ledger.open(path) as ledger:
        return [await _enter(ledger, number, payload) for number, payload in enumerate(SEQUENCES)]


def write_list(path: Path) -> None:
    """A list of organizations whose rows are no addresses, or addresses of a kind, with hostile offer codes."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["email", "offer_code", "".join(SEQUENCES[:3])])
        # A field of a megabyte is refused with the whole file; the others with their row.
        rows.writerows([f"{text}@evil.example", text, text] for text in SEQUENCES if len(text) < 100_000)


async def _enter(ledger: Ledger, number: int, payload: str) -> str:
    request = _request(number, payload)
    action = await ledger.prepare(
        action_id=None,
        kind=request.kind,
        subject=f"{request.subject}{number}" if request.subject else "",
        key=f"{payload}{number}",
        # An agent's name is a segment of its path, encoded.
        path=f"/external/agents/{quote(payload, safe='')}/executions",
        body_json=as_json(request),
        actor=f"console:{payload}",
    )
    await ledger.sending(action.action_id)
    error = ActionFailure(payload, payload, 500, payload)
    match number // 5 % 3:
        case 0:
            made = {"organization_name": payload, "organization_id": payload, payload: payload}
            await ledger.confirm(action.action_id, result_id=payload, response_json=json.dumps(made))
        case 1:
            await ledger.reject(action.action_id, error)
        case _:
            await ledger.unknown(action.action_id, error)
    return action.action_id


def _request(number: int, payload: str) -> WriteRequest:
    repository = Repository.of(payload, {"owner": payload, "repo": payload})
    requests: tuple[WriteRequest, ...] = (
        CreateOrganization(payload, payload),
        StartRun(payload, repository, payload, {payload: payload}),
        ContinueRun(payload, payload, repository, payload, {payload: payload}),
        StartAgent(payload, payload, payload, {payload: payload}),
        OnboardProject(payload),
    )
    return requests[number % len(requests)]


def now() -> str:
    """This instant, as the service writes it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _toml(text: str) -> str:
    return '"' + "".join(f"\\U{ord(character):08x}" for character in text) + '"'
