"""The demo's repositories: small, real git repositories, made on the spot from the samples beside this file."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SAMPLES: Final = Path(__file__).parent / "samples"
AUTHOR: Final = "Ada Example"
_PERSON: Final = {"NAME": AUTHOR, "EMAIL": "ada@acme.example"}


@dataclass(frozen=True, slots=True)
class SampleRepository:
    """A repository to make: the files of `main`, then a branch for each further folder of its sample."""

    name: str
    """As the service knows it: `owner/repo`, or `group/project` on GitLab."""
    platform: str
    sample: str
    branches: Mapping[str, str]
    """Branch name to the folder of its files, which are laid over those of `main`."""


REPOSITORIES: Final = (
    SampleRepository("acme/api", "github", "acme-api", {"fix/login-timeout": "fix-login-timeout"}),
    SampleRepository("acme/web", "github", "acme-web", {"agent/dark-mode": "agent-dark-mode"}),
    SampleRepository("acme/pipeline", "github", "acme-pipeline", {"feature/retries": "feature-retries"}),
    SampleRepository("platform/tools", "gitlab", "platform-tools", {}),
)


def bare_path(repository: SampleRepository, root: Path) -> Path:
    """The path of a bare repository below `root`."""
    return root / repository.platform / f"{repository.name}.git"


def make(repository: SampleRepository, root: Path) -> Path:
    """Create one bare repository below `root` and return its path.

    Raises:
        subprocess.CalledProcessError: git failed; its own words are in `stderr`.
    """
    bare = bare_path(repository, root)
    with tempfile.TemporaryDirectory(prefix="runwarden-sample-") as folder:
        work = Path(folder)
        _git(work, "init", "--quiet", "--initial-branch=main", ".")
        _commit(work, SAMPLES / repository.sample / "main", f"Begin {repository.name}")
        for branch, overlay in repository.branches.items():
            _git(work, "switch", "--quiet", "--create", branch, "main")
            _commit(work, SAMPLES / repository.sample / overlay, f"Work on {branch}")
        _git(work, "switch", "--quiet", "main")
        bare.parent.mkdir(parents=True, exist_ok=True)
        _git(work, "clone", "--quiet", "--bare", "--no-hardlinks", ".", str(bare))
    return bare


def _commit(work: Path, files: Path, message: str) -> None:
    shutil.copytree(files, work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    _git(work, "add", "--all")
    _git(work, "commit", "--quiet", "--message", message)


def _git(work: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=work, env=_environment(), check=True, capture_output=True, text=True)


def _environment() -> dict[str, str]:
    # Ignore the user's git configuration (signing, templates, hooks).
    who = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in _PERSON.items()}
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        **who,
    }
