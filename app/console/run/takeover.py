"""Taking a change over: applying it, checking its branch out, or opening one of its files."""

import asyncio
import os
import re
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from textual.app import App, SuspendNotSupported
from textual.content import Content

from app.console.forms.instructions import EditorError, editor_command
from app.console.sheets import ConfirmSheet, NotSureError
from app.results.checkout import AnotherRepositoryError, apply, check, check_out, check_remotes
from app.results.diff import Patch
from app.results.git import GitError
from app.text import plural, safe_text
from widgets.badges import STYLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.results.repository import RunRepositories
    from app.results.source import Results
    from storage.records import Repository, RunDetail
    from storage.records.results import Change

MOST_REMARKS: Final = 6
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A change that is to be applied to a checkout of its repository."""

    change: "Change"
    repository: "Repository"
    repositories: "RunRepositories"

    async def remark(self, folder: Path) -> str:
        """Compare the checkout's remotes with the repository's address; return what is unusual about them.

        Raises:
            AnotherRepositoryError: It is a checkout of another repository.
            GitError: It is no checkout.
        """
        return await check_remotes(folder, self.repository, self.repositories.address(self.repository))

    async def apply(self, folder: Path) -> str:
        """Apply the change, unless the checkout is another repository's; return a confirmation.

        Raises:
            NotSureError: The checkout is another repository's, and the user has to confirm it.
            GitError: The change cannot be applied.
        """
        try:
            await self.remark(folder)
        except AnotherRepositoryError as error:
            raise NotSureError(f"{error} ctrl+s applies it all the same.") from error
        return await self.apply_anyway(folder)

    async def apply_anyway(self, folder: Path) -> str:
        """Apply the change without a look at the remotes; return a confirmation. Raises GitError as `apply` does."""
        done = await apply(self.change, folder)
        return f"Applied {_files(done.files)} in {done.folder}. Look at it with git status."


async def apply_sheet(results: "Results", detail: "RunDetail", change: "Change") -> ConfirmSheet:
    """Return a sheet that applies a change to a checkout.

    Raises:
        GitError: It must not be applied.
    """
    patch = Patch(change.patch)
    await asyncio.to_thread(patch.read)
    remarks = check(change, patch)[:MOST_REMARKS]
    pending = PendingChange(change, detail.run.repository, results.repositories)
    nearest = nearest_checkout(results, detail.run.repository)
    offered: Path | str = ""
    try:
        remotes = await pending.remark(nearest)
        offered = nearest
    except GitError as error:
        remotes = str(error) if isinstance(error, AnotherRepositoryError) else ""
    facts = _apply_facts(change, (*remarks, remotes) if remotes else remarks)
    return ConfirmSheet("Apply to a checkout", facts, offered, pending.apply, pending.apply_anyway)


def _apply_facts(change: "Change", remarks: "Sequence[str]") -> list[Content]:
    added = sum(file.additions or 0 for file in change.files)
    removed = sum(file.deletions or 0 for file in change.files)
    return [
        Content(f"{_files(len(change.files))}, +{added:,} -{removed:,}, since {safe_text(change.base_name)}."),
        Content(
            "Nothing is committed. One with uncommitted changes is left alone; untracked files are never overwritten."
        ),
        *(Content.styled(safe_text(remark), STYLES["warn"]) for remark in remarks),
    ]


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

    return ConfirmSheet("Check the branch out", facts, nearest_checkout(results, run.repository), do)


def nearest_checkout(results: "Results", repository: "Repository") -> Path:
    """The configured checkout of a repository, else the working folder."""
    try:
        folder = Path(results.repositories.mirror(repository).address).expanduser()
        # A bare repository has no files to apply anything to.
        if (folder / ".git").exists():
            return folder
    except (GitError, RuntimeError, OSError):
        pass
    try:
        return Path.cwd()
    except OSError:  # The working folder was deleted.
        return Path(tempfile.gettempdir())


def show_in_program(app: "App[Any]", text: bytes, path: str, *, in_pager: bool) -> str:
    """Show a copy of a file in the user's pager or editor; return "" or the failure.

    This blocks the event loop until the program ends: it has the terminal, on which the console must not draw.
    """
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


def _files(count: int) -> str:
    return plural(count, "file")
