"""The demo's world: repositories, a service process set up for them, and a configuration that points at it."""

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from app.api.requests import Json
from app.config import Profile, Settings, load
from app.demo.repositories import REPOSITORIES, SAMPLES, bare_path, make
from app.demo.service_process import ServiceProcess, administer, start

AGENT: Final = Path(__file__).with_name("agent.py")
EDITS: Final = SAMPLES / "edits.toml"
AGENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "reviewer": ("18", "-"),
    "security-review": ("30", "-", "--input", "focus=security"),
    "housekeeping": ("45", "-", "--input", "focus=style"),
    "fixer": ("40", str(EDITS)),
}
"""Name to the arguments of the demo's agent: its usual seconds (none without a console), what it can mend (`-`:
nothing), and with what inputs it calls the reviewer that ships."""
LIVE: Final = ("--lab", "--workers", "4")
"""The service's options under a console."""
OFFER: Final = "PARTNER-DEMO"
RULES: Final = """\
[[automations]]
name = "second chance"
on = { run = "failed", repository = "acme/*" }
do = { continue = "The run failed. Find out why, fix it, and finish the job." }
limit = { per_conversation = 1 }
approval = true

[[automations]]
name = "nightly housekeeping"
on = { schedule = "0 3 * * mon-fri" }
do = { agent = "housekeeping", repository = "acme/web" }

[[automations]]
name = "tell of a bad host"
on = { health = "not ok", for = "15s" }
do = { notify = "team" }

[notify.routes.team]
command = ["sh", "-c", 'printf "%s\\n" "$1" >> "$2"', "sh", "{title}", MESSAGES]
"""
"""Three automations: one that asks first, one at a time, and one that tells."""


@dataclass(frozen=True, slots=True)
class World:
    """A running demo."""

    folder: Path
    service: ServiceProcess
    token: str
    repositories: Mapping[str, Path]
    """Name to bare repository."""
    is_resumed: bool = False
    """Whether a kept demo is resumed."""

    @property
    def service_dir(self) -> Path:
        """The service's data folder."""
        return _service_dir(self.folder)

    @property
    def log(self) -> Path:
        """The service's log."""
        return _log(self.folder)

    def announcement(self) -> str:
        """The line that scripts read first (DESIGN section 5)."""
        return json.dumps(
            {
                "base_url": self.service.base_url,
                "token": self.token,
                "data_dir": str(self.service_dir),
                "repositories": [{"name": name, "path": str(path)} for name, path in self.repositories.items()],
                "agents": list(AGENTS),
                "outbox": str(self.service_dir / "outbox"),
            }
        )

    def configuration(self) -> tuple[Settings, Profile]:
        """The settings and the profile of a console for this world."""
        settings = load(self.folder / "config.toml", {})
        return settings, settings.profile()


def build(folder: Path, *, is_live: bool) -> World:
    """Create the repositories, and set up and start the service, all at the same time.

    Raises:
        DemoError: The service could not be set up or started.
        subprocess.CalledProcessError: git failed.
    """
    setup = folder / "service-setup.json"
    setup.write_text(json.dumps(_setup(folder / "repositories", is_live=is_live), indent=2), encoding="utf-8")
    options = LIVE if is_live else ()
    with ThreadPoolExecutor() as pool:
        applied = pool.submit(administer, ["apply", str(setup), "--data-dir", str(_service_dir(folder)), "--json"])
        made = [pool.submit(make, repository, folder / "repositories") for repository in REPOSITORIES]
        service = start(_service_dir(folder), _log(folder), "--port", "0", *options)
    try:
        tokens = {each["alias"]: each["value"] for each in applied.result()["organizations"][0]["tokens"]}
        repositories = {each.name: path.result() for each, path in zip(REPOSITORIES, made, strict=True)}
        write_configuration(folder, service.base_url, tokens, is_live=is_live)
    except BaseException:
        service.stop()
        raise
    return World(folder, service, tokens["demo"], repositories)


def resume(folder: Path) -> World:
    """Start the service of a kept folder at its old place.

    Raises:
        DemoError: The service could not be started.
    """
    port = urlsplit(load(folder / "config.toml", {}).profile().base_url).port
    service = start(_service_dir(folder), _log(folder), *LIVE, "--port", str(port))
    repositories = {each.name: bare_path(each, folder / "repositories") for each in REPOSITORIES}
    return World(folder, service, (folder / "token").read_text("utf-8"), repositories, is_resumed=True)


def _service_dir(folder: Path) -> Path:
    return folder / "service"


def _log(folder: Path) -> Path:
    return folder / "service.log"


def _setup(repositories: Path, *, is_live: bool) -> dict[str, Json]:
    """The input of `runwarden service apply`."""
    organization: dict[str, Json] = {
        "name": "Acme Demo",
        "slug": "acme",
        "entitlements": ["ServiceAPI", "CreateOrganizations"],
        "tokens": [{"alias": alias, "scopes": ["admin"]} for alias in ("demo", "team")],
        "hosts": [
            {"platform": "github", "probe": "git", "clone_url": f"{repositories}/github/{{path}}.git"},
            {
                "platform": "gitlab",
                "probe": "git",
                "clone_url": f"{repositories}/gitlab/{{path}}.git",
                "host": "gitlab.acme.example",
                "group": "platform",
            },
        ],
        "repositories": [{"name": each.name, "platform": each.platform, "path": each.name} for each in REPOSITORIES],
    }
    return {
        "organizations": [organization],
        "offers": [{"code": OFFER, "kind": "partner"}],
        "agents": [
            {"name": name, "argv": ["{python}", "-P", str(AGENT), pace if is_live else "0", *rest]}
            for name, (pace, *rest) in AGENTS.items()
        ],
    }


def write_configuration(folder: Path, base_url: str, tokens: Mapping[str, str], *, is_live: bool) -> None:
    """Write the configuration of the console, and that of the team whose runs it watches."""
    repositories = (
        "[repositories]\n"
        f'"*" = {json.dumps(f"{folder}/repositories/github/{{path}}.git")}\n'
        f'"gitlab:*" = {json.dumps(f"{folder}/repositories/gitlab/{{path}}.git")}\n\n'
    )
    at_work = RULES.replace("MESSAGES", json.dumps(str(folder / "messages.log"))) if is_live else ""
    tour = "[console]\ntour = true\n\n" if is_live else ""
    for alias, file, extra in (("demo", "config", f"{tour}{at_work}"), ("team", "team", "")):
        secret = folder / ("token" if alias == "demo" else f"{alias}-token")
        with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as written:
            written.write(tokens[alias])
        (folder / f"{file}.toml").write_text(
            f"data_dir = {json.dumps(str(folder / ('client' if alias == 'demo' else alias)))}\n\n"
            f"[poll]\nruns_s = 2\nhealth_s = 5\n\n{repositories}"
            f"[profiles.{alias}]\nbase_url = {json.dumps(base_url)}\ntoken_file = {json.dumps(str(secret))}\n\n{extra}",
            encoding="utf-8",
        )
