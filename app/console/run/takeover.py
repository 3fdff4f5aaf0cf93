"""Taking a change over: applying it, checking its branch out, or opening one of its files."""

import asyncio
import os
import re
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from textual.app import App, SuspendNotSupported
from textual.content import Content

from app.console.forms.instructions import EditorError, editor_command
from app.console.sheets.confirm import ConfirmSheet, NotSureError
from app.results.checkout import AnotherRepositoryError, apply, check, check_out, check_remotes
from app.results.diff import Patch
from app.results.git import GitError
from app.text import plural, safe_text
from widgets.badges import STYLES

if TYPE_CHECKING:
    from app.results.source import Results
    from storage.records import Repository, RunDetail
    from storage.records.results import Change

MOST_REMARKS: Final = 6
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9._-]+")


async def apply_sheet(results: "Results", detail: "RunDetail", change: "Change") -> ConfirmSheet:
    """Return a sheet that applies a change to a checkout.

    Raises:
        GitError: It must not be applied.
    """
    patch = Patch(change.patch)
    await asyncio.to_thread(patch.read)
    remarks = check(change, patch)
    added = sum(file.additions or 0 for file in change.files)
    removed = sum(file.deletions or 0 for file in change.files)
    facts = [
        Content(f"{_files(len(change.files))}, +{added:,} -{removed:,}, since {safe_text(change.base_name)}."),
        Content(
            "Nothing is committed. One with uncommitted changes is left alone; untracked files are never overwritten."
        ),
        *(Content.styled(safe_text(remark), STYLES["warn"]) for remark in remarks[:MOST_REMARKS]),
    ]

    repository = detail.run.repository
    nearest = near(results, repository)
    offered: Path | str = ""
    try:
        remark = await check_remotes(nearest, repository, results.repositories.address(repository))
        offered = nearest
    except GitError as error:
        remark = str(error) if isinstance(error, AnotherRepositoryError) else ""
    if remark:
        facts.append(Content.styled(safe_text(remark), STYLES["warn"]))

    async def anyway(folder: Path) -> str:
        done = await apply(change, folder)
        return f"Applied {_files(done.files)} in {done.folder}. Look at it with git status."

    async def do(folder: Path) -> str:
        try:
            await check_remotes(folder, repository, results.repositories.address(repository))
        except AnotherRepositoryError as error:
            raise NotSureError(f"{error} ctrl+s applies it all the same.") from error
        return await anyway(folder)

    return ConfirmSheet("Apply to a checkout", facts, offered, do, anyway)


def checkout_sheet(results: "Results", detail: "RunDetail") -> ConfirmSheet:
    """Return a sheet that checks a run's branch out in a new folder."""
    run = detail.run
    facts = [
        Content(safe_text(f"{run.branch_name} of {run.repository.label}, in a new folder beside the checkout below.")),
        Content("Hooks and filters of the repository are not run."),
    ]

    async def do(folder: Path) -> str:
        done = await check_out(await results.repositories.history(detail), run.branch_name, folder)
        shares = f" It needs {done.shares} to stay." if done.shares else ""
        return f"Checked out {done.commit[:10]} in {done.folder}.{shares}"

    return ConfirmSheet("Check the branch out", facts, near(results, run.repository), do)


def near(results: "Results", repository: "Repository") -> Path:
    """The configured checkout of a repository, else the working folder."""
    try:
        place = Path(results.repositories.mirror(repository).address).expanduser()
        # A bare repository has no files to apply anything to.
        if (place / ".git").exists():
            return place
    except (GitError, RuntimeError, OSError):
        pass
    try:
        return Path.cwd()
    except OSError:  # The working folder was deleted.
        return Path(tempfile.gettempdir())


def _files(count: int) -> str:
    return plural(count, "file")


def look_at(app: "App[Any]", text: bytes, path: str, *, in_pager: bool) -> str:
    """Show a copy of a file in the user's pager or editor, which gets the terminal; return "" or the failure."""
    try:
        command = shlex.split(os.environ.get("PAGER") or "less") if in_pager else editor_command(os.environ)
        with tempfile.TemporaryDirectory(prefix="runwarden-") as folder:
            # The name is foreign: only its ending is kept, for the editor.
            file = Path(folder) / (_UNUSUAL.sub("-", path.rsplit("/", 1)[-1])[-80:].lstrip("-.") or "file")
            file.write_bytes(text)
            file.chmod(0o400)
            with app.suspend():
                subprocess.run([*command, os.fspath(file)], check=False)
    except SuspendNotSupported:
        return "This terminal cannot be handed over."
    except (OSError, ValueError, EditorError) as error:
        return f"The program could not be started: {error}"
    return ""
