"""The demo's world: git repositories made from samples, a service set up for them, and a configuration for both.

What fails raises `DemoError`, git's failures `subprocess.CalledProcessError`.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct
from tomlkit import dumps, string

from app.demo.service_process import NO_ACCOUNT, DemoError, ServiceProcess, apply, bubblewrap_works, start
from app.profiles import Choice, Profile, Settings, load

PROFILE: Final = "demo"
"""The demo's profile; a kept demo's configuration may contain others."""
SAMPLES: Final = Path(__file__).parent / "samples"
AUTHOR: Final = "Ada Example"
_PERSON: Final = {"NAME": AUTHOR, "EMAIL": "ada@acme.example"}
AGENT: Final = Path(__file__).with_name("agent.py")
REPLAY: Final = Path(__file__).with_name("replay.py")
SESSIONS: Final = SAMPLES / "sessions"
FIXER: Final = "fixer"
FIXER_PACE_S: Final = "40"
REVIEWERS: Final[Mapping[str, tuple[str, ...]]] = {
    "reviewer": ("18",),
    "security-review": ("30", "--input", "focus=security"),
    "housekeeping": ("45", "--input", "focus=style"),
}
"""The usual seconds of each reviewer (0 without a console) and the inputs with which it is called, by name."""
AGENTS: Final = (*REVIEWERS, FIXER)
PROGRAMS: Final = {
    "claude": ("claude-code", "anthropic", "ANTHROPIC", "npm install -g @anthropic-ai/claude-code"),
    "codex": ("codex", "openai", "OPENAI", "npm install -g @openai/codex"),
    "gemini": ("gemini", "gemini", "GEMINI", "npm install -g @google/gemini-cli"),
    "opencode": ("opencode", "anthropic", "ANTHROPIC", "npm install -g opencode-ai"),
    "aider": ("aider", "anthropic", "ANTHROPIC", "pipx install aider-chat"),
}
"""Programs for `--agent`: the service's preset, the provider, the beginning of the names of its variables (`_API_KEY`,
and `_BASE_URL` for another address), and how to install it."""
OWN_BUDGET: Final = {"run_usd": 1, "day_usd": 5}
LIVE: Final = ("--lab", "--workers", "4")
"""The service's options for a demo with a console."""
OFFER: Final = "PARTNER-DEMO"
SERVICE: Final = "service"
LOG: Final = "service.log"
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
do = { agent = "housekeeping", repository = "acme/web", inputs = { instructions = "Review main for style." } }

[[automations]]
name = "report a bad host"
on = { health = "not ok", for = "15s" }
do = { notify = "team" }

[notify.routes.team]
command = ["sh", "-c", 'printf "%s\\n" "$1" >> "$2"', "sh", "{title}", MESSAGES]
"""


class SampleRepository(Struct, frozen=True):
    """A repository to create: the files of `main`, then a branch for each other folder of its sample."""

    name: str
    """Its name in the service: `owner/repo`, or `group/project` on GitLab."""
    platform: str
    sample: str
    branches: Mapping[str, str]
    """The folder with the files of each branch, which are copied over those of `main`."""


REPOSITORIES: Final = (
    SampleRepository("acme/api", "github", "acme-api", {"fix/login-timeout": "fix-login-timeout"}),
    SampleRepository("acme/web", "github", "acme-web", {"agent/dark-mode": "agent-dark-mode"}),
    SampleRepository("acme/pipeline", "github", "acme-pipeline", {"feature/retries": "feature-retries"}),
    SampleRepository("platform/tools", "gitlab", "platform-tools", {}),
)


def bare_path(repository: SampleRepository, root: Path) -> Path:
    return root / repository.platform / f"{repository.name}.git"


def make(repository: SampleRepository, root: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="runwarden-sample-") as folder:
        work = Path(folder)
        _git(work, "init", "--quiet", "--initial-branch=main", ".")
        _commit(work, SAMPLES / repository.sample / "main", f"Begin {repository.name}")
        for branch, overlay in repository.branches.items():
            _git(work, "switch", "--quiet", "--create", branch, "main")
            _commit(work, SAMPLES / repository.sample / overlay, f"Work on {branch}")
        _git(work, "switch", "--quiet", "main")
        bare = bare_path(repository, root)
        bare.parent.mkdir(parents=True, exist_ok=True)
        _git(work, "clone", "--quiet", "--bare", "--no-hardlinks", ".", str(bare))


def _commit(work: Path, files: Path, message: str) -> None:
    shutil.copytree(files, work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    _git(work, "add", "--all")
    _git(work, "commit", "--quiet", "--message", message)


def _git(work: Path, *arguments: str) -> None:
    # Ignore the user's git configuration (signing, templates, hooks).
    who = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in _PERSON.items()}
    alone = {"HOME": os.devnull, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    env = {"PATH": os.environ.get("PATH", os.defpath), **alone, **who}
    subprocess.run(["git", *arguments], cwd=work, env=env, check=True, capture_output=True, text=True)


class World(Struct, frozen=True):
    """A running demo."""

    folder: Path
    service: ServiceProcess
    is_resumed: bool = False

    def configuration(self) -> tuple[Settings, Profile]:
        file = self.folder / "config.toml"
        settings = load(file, {}, Choice(config=file))
        return settings, settings.profile(PROFILE)


def build(folder: Path, *, is_live: bool) -> World:
    """Create the repositories while setting up and starting the service."""
    root = folder / "repositories"
    organization: dict[str, object] = {
        "name": "Acme Demo",
        "slug": "acme",
        "entitlements": ["ServiceAPI", "CreateOrganizations"],
        "tokens": [{"alias": alias, "scopes": ["admin"]} for alias in (PROFILE, "team")],
        "hosts": [
            {"platform": "github", "probe": "git", "clone_url": f"{root}/github/{{path}}.git"},
            {
                "platform": "gitlab",
                "probe": "git",
                "clone_url": f"{root}/gitlab/{{path}}.git",
                "host": "gitlab.acme.example",
                "group": "platform",
            },
        ],
        "repositories": [{"name": repo.name, "platform": repo.platform, "path": repo.name} for repo in REPOSITORIES],
    }
    order = {
        "organizations": [organization],
        "offers": [{"code": OFFER, "kind": "partner"}],
        "agents": [*_agents(folder, is_live=is_live)],
    }
    options = LIVE if is_live else ()
    with ThreadPoolExecutor() as pool:
        applied = pool.submit(apply, folder / SERVICE, folder / "service-setup.json", order)
        made = [pool.submit(make, repository, root) for repository in REPOSITORIES]
        service = start(folder / SERVICE, folder / LOG, "--port", "0", *options)
    try:
        tokens = {token["alias"]: token["value"] for token in applied.result()["organizations"][0]["tokens"]}
        for repository in made:
            repository.result()
        write_configuration(folder, service.base_url, tokens, is_live=is_live)
    except BaseException:
        service.stop()
        raise
    return World(folder, service)


def _agents(folder: Path, *, is_live: bool) -> Iterator[dict[str, object]]:
    for name, (pace, *rest) in REVIEWERS.items():
        argv = ["{python}", "-P", str(AGENT), pace if is_live else "0", *rest]
        yield {"name": name, "argv": argv, "description": "Scripted stand-in: the bundled reviewer, at a model's pace."}
    program = folder / "claude-stand-in"
    # Its interpreter is not that of the virtual environment, whose path may be too long, or have blanks.
    program.write_text(f"#!{Path(sys.executable).resolve()}\n{REPLAY.read_text('utf-8')}", "utf-8")
    program.chmod(0o755)
    # Nothing answers at this address: the demo's script calls no model.
    model = {"provider": "anthropic", "key_command": ["echo", "none"], "base_url": "http://127.0.0.1:9"}
    yield {
        "name": FIXER,
        "preset": "claude-code",
        "argv": [str(program), str(SESSIONS), FIXER_PACE_S if is_live else "0"],
        "readable": [str(SESSIONS)],
        "description": "Scripted stand-in: replays recorded sessions of Claude Code. No model, no account.",
        **({"model": model} if bubblewrap_works() else {"environment": [*NO_ACCOUNT]}),
    }


def tasks() -> dict[str, list[str]]:
    """The tasks that the fixer has a recorded session for, by the sample of their repository."""
    by_sample: dict[str, list[str]] = {}
    for file in sorted(SESSIONS.glob("*.jsonl")):
        with file.open(encoding="utf-8") as lines:
            about = json.loads(lines.readline())
        by_sample.setdefault(about["repository"], []).append(about["task"])
    return by_sample


def check_program(name: str) -> None:
    """Check that the user has a program, and the key of its model."""
    if name not in PROGRAMS:
        raise DemoError(f"The demo knows no program {name!r}. Name one of: {', '.join(PROGRAMS)}.")
    _, _, variables, install = PROGRAMS[name]
    if shutil.which(name) is None:
        raise DemoError(f"{name} is not on PATH. Install it ({install}), or leave out --agent.")
    if not os.environ.get(f"{variables}_API_KEY"):
        raise DemoError(
            f"{name} needs the key of its model: export {variables}_API_KEY=…, or leave out --agent: "
            "the demo's own agents need no model and no account."
        )
    if not bubblewrap_works():
        raise DemoError(f"{name} needs a sandbox: install bubblewrap (apt install bubblewrap), or leave out --agent.")


def add_program(world: World, name: str) -> None:
    preset, provider, variables, _ = PROGRAMS[name]
    model: dict[str, object] = {"provider": provider, "key_env": f"{variables}_API_KEY", "budget": OWN_BUDGET}
    if address := os.environ.get(f"{variables}_BASE_URL"):
        model["base_url"] = address
    description = f"Your own {name}, with your key: at most $1 a run and $5 a day."
    agent = {"name": name, "preset": preset, "model": model, "description": description}
    apply(world.folder / SERVICE, world.folder / "own-agent.json", {"agents": [agent]})


def port_of(folder: Path) -> int | None:
    """The service's port, from the configuration of a kept folder."""
    return urlsplit(load(folder / "config.toml", {}).profile(PROFILE).base_url).port


def resume(folder: Path) -> World:
    """Start the service of a kept folder on its old port."""
    service = start(folder / SERVICE, folder / LOG, *LIVE, "--port", str(port_of(folder)))
    return World(folder, service, is_resumed=True)


def write_configuration(folder: Path, base_url: str, tokens: Mapping[str, str], *, is_live: bool) -> None:
    """Write the configurations of the console and of the simulated team."""
    clones = folder / "repositories"
    repositories = {"*": f"{clones}/github/{{path}}.git", "gitlab:*": f"{clones}/gitlab/{{path}}.git"}
    at_work = ""
    if is_live:
        at_work = RULES.replace("MESSAGES", string(str(folder / "messages.log")).as_string())
    for alias, file, extra in ((PROFILE, "config", at_work), ("team", "team", "")):
        secret = folder / ("token" if alias == PROFILE else f"{alias}-token")
        with os.fdopen(os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as written:
            written.write(tokens[alias])
        settings = {
            "data_dir": str(folder / ("client" if alias == PROFILE else alias)),
            "default_profile": alias,
            "poll": {"runs_s": 2, "health_s": 5},
            "repositories": repositories,
            "profiles": {alias: {"base_url": base_url, "token_file": str(secret)}},
        }
        (folder / f"{file}.toml").write_text(f"{dumps(settings)}\n{extra}", "utf-8")
