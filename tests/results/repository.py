"""Real repositories for the tests of what a run did."""

import os
import subprocess
from pathlib import Path

ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "HOME": os.devnull,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{role}_NAME": "A" for role in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{role}_EMAIL": "a@b.example" for role in ("AUTHOR", "COMMITTER")},
}


def git(folder: Path, *arguments: str, **environment: str) -> bytes:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=ENVIRONMENT | environment, check=True, capture_output=True
    )
    return done.stdout
