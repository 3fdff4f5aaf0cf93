"""The changes of a run or of one turn: the files and their diffs."""

import asyncio
import os
import re
import shlex
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from textual import on, work
from textual.app import App, ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message

from app.actions.screen_fields import EditorError, editor_command
from app.console.session import FIX_TOAST_S
from app.console.sheets import ConfirmSheet, FolderWork, NotSureError
from app.engine.text import SafeText, plural, safe_text
from app.results.checkout import AnotherRepositoryError, apply, check, check_out, check_remotes, save
from app.results.diff import Patch
from app.results.git import GitError
from app.results.source import Results
from app.runs.screen_subject import RunSubject, RunVersion, SearchedPart, showing_failure, unavailable
from storage.records import Repository
from storage.records.results import Artifact, Change, ChangedFile, Unavailable
from widgets.kit import hidden
from widgets.kit.badges import STYLES
from widgets.kit.cells import Column
from widgets.kit.line_table import LineTable, TableLine
from widgets.kit.text_view import TextSearch
from widgets.results.diff import Colours, DiffRows, DiffView, colours

MAX_REMARKS: Final = 6
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9._-]+")


def artifact_sheet(app: App[Any], results: Results, run_id: str, turn: int, artifact: Artifact) -> ConfirmSheet:
    """Return a sheet that saves a file that an agent left, or shows it in the pager."""

    async def content() -> bytes:
        data = await results.artifact(run_id, turn, artifact)
        if isinstance(data, Unavailable):
            raise GitError(data.reason)
        return data

    async def do(folder: Path) -> str:
        return f"Saved {save(folder, artifact.name, await content())}."

    async def read() -> str:
        data = await content()
        if b"\0" in data:
            raise GitError("It is not text: save it.")
        return show_in_program(app, data, artifact.name, in_pager=True)

    facts = [Content(f"{safe_text(artifact.name)}, {artifact.bytes:,} bytes of turn {turn}. Nothing is replaced.")]
    work = FolderWork(os.environ.get("PWD", "~"), do)
    return ConfirmSheet("Artifact", facts, work, verb="Save it", leaving="Leave it", instead=("Read it", read))


def nearest_checkout(results: Results, repository: Repository) -> Path:
    """Return the configured checkout of a repository, otherwise the working folder."""
    address = results.repositories.address(repository)
    with suppress(RuntimeError, OSError):
        # A bare repository has no files to apply anything to.
        if address and ((folder := Path(address).expanduser()) / ".git").exists():
            return folder
    try:
        return Path.cwd()
    except OSError:  # The working folder was deleted.
        return Path(tempfile.gettempdir())


def show_in_program(app: App[Any], text: bytes, path: str, *, in_pager: bool) -> str:
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
        return "No program can be opened in this terminal."
    except (OSError, ValueError, EditorError) as error:
        return f"The program could not be started: {error}"
    return ""


FIRST_LINES: Final = 500
"""Lines of the patch read before the first frame."""
STEP: Final = 20_000


class FileItem:
    """A changed file as a line of the list."""

    def __init__(self, file: ChangedFile, number: int, count: int) -> None:
        """Prepare; `count` is the width of a number of lines."""
        self.number = number
        self.key = str(number)
        counts = ("bin", "") if file.is_binary else (f"+{file.additions or 0:,}", f"-{file.deletions or 0:,}")
        self._cells: TableLine = (
            (safe_text(file.path, limit=1_000), "plain"),
            (SafeText(f"{counts[0]:>{count}}"), "good"),
            (SafeText(f"{counts[1]:>{count}}"), "bad"),
        )

    def cells(self, now: datetime) -> TableLine:
        del now
        return self._cells


def file_columns(count: int = 3) -> tuple[Column, ...]:
    """Path, and the lines added and removed, in `count` cells each."""
    return Column("file", 8, grows=1, cut="middle"), *(Column(f"{sign:>{count}}", count) for sign in "+-")


class ChangesPart(SearchedPart):
    """The files, and the diff."""

    WIDE = 100
    DEFAULT_CSS = Path(__file__).with_name("changes.tcss").read_text("utf-8")

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("A", "apply", "apply", tooltip="Apply the change to a local checkout", id="run.apply"),
        Binding("B", "check_out", "check out", tooltip="Check the branch out in a new folder", id="run.check_out"),
        hidden("right_curly_bracket", "step_file(1)", "next file", id="run.next_file"),
        hidden("left_curly_bracket", "step_file(-1)", "previous file", id="run.prev_file"),
        hidden("ctrl+e", "open_file(False)", "editor", tooltip="Open a copy of the file in $EDITOR", id="run.editor"),
        hidden("L", "open_file(True)", "pager", tooltip="Open a copy of the file in $PAGER", id="run.pager"),
        hidden("H", "copy_hunk", "copy hunk", tooltip="Copy the hunk under the cursor", id="run.copy_hunk"),
    ]

    @dataclass
    class NotFound(Message):
        """A finding's file is neither among the changed ones nor known from git."""

        path: str
        reason: str

    body: DiffView

    def __init__(self, subject: RunSubject) -> None:
        super().__init__(subject)
        self._files: LineTable[FileItem] = LineTable(self.session.clock(), file_columns())
        self.body = DiffView()
        self.search = TextSearch(self.body)
        self._shown: RunVersion | None = None
        self._change: Change | None = None
        self._is_whole = False
        """Whether all lines of the shown change were read."""
        self._is_beside = False
        """Whether a file is shown that was not changed."""
        self._lexing = asyncio.Lock()
        self._target: tuple[str, int | None] | None = None
        """The file and line for the cursor once the diff is read."""

    def compose(self) -> ComposeResult:
        yield self._files
        yield self.search

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        detail = self.subject.detail
        if action == "check_out":
            return detail is not None and self.subject.results.repositories.address(detail.run.repository) is not None
        if action == "open_file":
            # Needs the files themselves, not only their changes.
            return self._change is not None and any(file.new_blob or file.old_blob for file in self._change.files)
        if action in {"apply", "step_file", "copy_hunk"}:
            return bool(self.body.total) and not self._is_beside
        return super().check_action(action, parameters)

    def action_step_file(self, step: int) -> None:
        self.body.action_file(step)

    def show(self) -> None:
        # A change that is shown in part is read completely without starting again.
        if self.subject.version != self._shown:
            self.start(self._read, exclusive=True, group="change")
        else:
            self._settle()

    def stop_reading(self) -> None:
        """If a file outside the change was shown, show the change next time."""
        if self._is_beside:
            self._clear()

    def go_to(self, path: str, line: int | None) -> None:
        """Put the cursor on a line of a file once the file is read; report an unknown file."""
        self._target = path, line
        self.show()

    async def _read(self) -> None:
        subject = self.subject
        detail = self.subject.detail
        version = self.subject.version
        if detail is None:
            return
        if self._shown is None or version[0] != self._shown[0]:  # The screen shows another run or turn now.
            self._clear()
            self.body.notice = unavailable("Reading the changes…", "The first time, its repository is fetched.")
        with showing_failure(self.body):
            change = await self.subject.results.change(detail, subject.turn)
        self._clear()
        self._shown = version
        if isinstance(change, Unavailable):
            self._is_whole = True
            self.body.notice = unavailable("The changes are not available.", change.reason)
            self._settle()
            return
        self._change = change
        await self._show(change)

    def _clear(self) -> None:
        self._change, self._shown, self._is_whole, self._is_beside = None, None, False, False
        self._files.display = False
        self.body.show(DiffRows(Patch(b"")), (), ())
        self.refresh_bindings()

    async def _show(self, change: Change) -> None:
        largest = max((max(file.additions or 0, file.deletions or 0) for file in change.files), default=0)
        count = max(3, len(f"+{largest:,}"))
        self._files.set_columns(file_columns(count))
        self._files.show([FileItem(file, number, count) for number, file in enumerate(change.files)])
        self._files.display = len(change.files) > 1
        rows = DiffRows(Patch(change.patch))
        rows.extend(FIRST_LINES)
        detail = self.subject.detail
        turn = self.subject.turn
        # The most important facts first.
        facts: tuple[str, ...] = safe_text(change.note), f"as of {(change.head or '')[:10]}"
        if not self._is_beside:
            added, removed = change.lines
            base = f"since {safe_text(change.base_name)}" if change.base_name else ""
            ends = ""
            if change.head:
                ends = f"{(change.base or '')[:10]}…{(change.head or '')[:10]}"
            source = "from git" if change.source == "git" else "from the service"
            state = "" if change.is_pushed else "not pushed"
            whole = "whole run" if turn is None else f"turn {turn}"
            facts = state, base, source, f"+{added:,} -{removed:,}", safe_text(change.note), whole, safe_text(ends)
        self.body.show(rows, change.files, facts, is_whole_file=self._is_beside)
        may_change = detail is not None and not detail.is_final and turn in {None, self.subject.last_turn}
        self.body.notice = unavailable(f"Nothing was changed{' so far' if may_change else ''}.", change.note)
        self.refresh_bindings()
        self._settle()
        while not rows.is_complete:
            await asyncio.to_thread(rows.extend, STEP)
            self.body.grew()
            self._settle()
        self._is_whole = True
        self._settle()

    def _settle(self) -> None:
        """Put the cursor on a finding's line; give up once everything was read."""
        if self._target is None:
            return
        if self._change is not None and self.body.go_to_line(*self._target):
            self._target = None
        elif self._is_whole:
            self.start(partial(self._read_beside, *self._target), exclusive=True, group="change")
            self._target = None

    async def _read_beside(self, path: str, line: int | None) -> None:
        if (detail := self.subject.detail) is None:
            return
        version = self.subject.version
        file = await self.subject.results.file(detail, path, self.subject.turn)
        if not self.display:
            return  # The screen shows another tab by now.
        if isinstance(file, Unavailable):
            self.post_message(self.NotFound(path, file.reason))
            return
        self._clear()
        self._shown = version
        self._change = file
        self._is_beside = True
        await self._show(file)
        self.body.go_to_line(path, line)

    def action_copy_hunk(self) -> None:
        if text := self.body.hunk_text():
            self.session.copy_as_is(text, f"The hunk ({plural(len(text.splitlines()), 'line')})")

    @work(exclusive=True, group="open file")
    async def action_open_file(self, in_pager: bool) -> None:
        if self.body.file is None:
            return
        file = self.body.changed_file(self.body.file)
        detail = self.subject.detail
        blob = file.new_blob or file.old_blob
        if detail is None or blob is None:
            self.session.notify("The file itself needs its repository: name it under [repositories].")
            return
        text = await self.subject.results.blob(detail, blob)
        if isinstance(text, Unavailable):
            self.session.notify(text.reason, severity="warning")
        elif problem := show_in_program(self.app, text, file.path, in_pager=in_pager):
            self.session.notify(problem, severity="warning")

    @work(exclusive=True, group="pick")
    async def action_apply(self) -> None:
        results = self.subject.results
        change = self._change
        if (detail := self.subject.detail) is None or change is None:
            self.session.notify("There is no change to apply yet.")
            return
        repository = detail.run.repository
        address = results.repositories.address(repository)

        async def apply_anyway(folder: Path) -> str:
            done = await apply(change, folder)
            return f"Applied {plural(done.files, 'file')} in {done.folder}. Look at it with git status."

        async def apply_checked(folder: Path) -> str:
            try:
                await check_remotes(folder, repository, address)
            except AnotherRepositoryError as error:
                reason = f"{error} Press ctrl+s to apply it anyway."
                raise NotSureError(reason, partial(apply_anyway, folder)) from error
            return await apply_anyway(folder)

        patch = Patch(change.patch)
        await asyncio.to_thread(patch.read)
        remarks = check(change, patch)[:MAX_REMARKS]
        nearest = nearest_checkout(results, repository)
        offered: Path | str = ""
        try:
            remotes = await check_remotes(nearest, repository, address)
            offered = nearest
        except GitError as error:
            remotes = str(error) if isinstance(error, AnotherRepositoryError) else ""
        added, removed = change.lines
        size = f"{plural(len(change.files), 'file')}, +{added:,} -{removed:,}"
        care = (
            "Nothing is committed. One with uncommitted changes is left alone; untracked files are never overwritten."
        )
        facts = [
            Content(f"{size}, since {safe_text(change.base_name)}."),
            *([] if change.is_pushed else [Content.styled("It was not pushed: no branch has it.", STYLES["warn"])]),
            Content(care),
            *(Content.styled(safe_text(text), STYLES["warn"]) for text in (*remarks, remotes) if text),
        ]
        work = FolderWork(offered, apply_checked)
        await self._offer(ConfirmSheet("Apply to a checkout", facts, work, verb="Apply it", leaving="Leave it"))

    @work
    async def action_check_out(self) -> None:
        results = self.subject.results
        if (detail := self.subject.detail) is None:
            return
        run = detail.run
        facts = [
            Content(
                safe_text(f"{run.branch_name} of {run.repository.label}, in a new folder next to the checkout below.")
            ),
            Content("Hooks and filters of the repository are not run."),
        ]

        async def do(folder: Path) -> str:
            done = await check_out(await results.repositories.history(detail), run.branch_name, folder)
            shares = f" It needs {done.shares} to stay." if done.shares else ""
            return f"Checked out {done.commit[:10]} in {done.folder}.{shares}"

        work = FolderWork(nearest_checkout(results, run.repository), do)
        await self._offer(ConfirmSheet("Check the branch out", facts, work, verb="Check it out", leaving="Leave it"))

    async def _offer(self, sheet: ConfirmSheet) -> None:
        if result := await self.app.push_screen_wait(sheet):
            self.session.notify(result, timeout=FIX_TOAST_S)

    @on(DiffView.FileEntered)
    def select_file(self, message: DiffView.FileEntered) -> None:
        # Another change may be shown by now.
        if self._change is None or message.file != self.body.file:
            return
        path = self.body.changed_file(message.file).path
        paths = [file.path for file in self._change.files]
        if path in paths:
            self._files.seek(str(paths.index(path)))

    @on(LineTable.Highlighted)
    @on(LineTable.Chosen)
    def show_file(self, message: LineTable.Highlighted | LineTable.Chosen) -> None:
        item = self._files.item
        if item is None or self._change is None or not self._files.has_focus:
            return
        self.body.go_to_line(self._change.files[item.number].path, None)
        if isinstance(message, LineTable.Chosen):
            self.body.focus()

    @on(DiffView.ColoursRequested)
    @work(group="colours")
    async def colour_file(self, message: DiffView.ColoursRequested) -> None:
        file = message.file
        version = self._shown
        detail = self.subject.detail
        async with self._lexing:
            # Another change may be shown by now, with fewer files.
            is_gone = version != self._shown or file >= self.body.count
            if detail is None or is_gone or (facts := self.body.changed_file(file)).is_binary:
                return
            sides: list[Colours] = []
            for blob, path in ((facts.old_blob, facts.old_path or facts.path), (facts.new_blob, facts.path)):
                text = None if blob is None else await self.subject.results.blob(detail, blob)
                sides.append(await asyncio.to_thread(colours, text, path) if isinstance(text, bytes) else ())
            if version == self._shown:
                self.body.colour(file, *sides)
