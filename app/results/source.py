"""A run's results from git or the service, with their source, or the reason why neither has them."""

import asyncio
from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase
from typing import Final, TypeVar

from msgspec.structs import replace

from app.api.client import Client
from app.api.errors import ApiError
from app.api.network import Network
from app.engine.text import safe_text
from app.profiles import Settings, data_root
from app.results.diff import Patch, new_side
from app.results.git import Git, GitError
from app.results.repository import MAX_FILE, CommitHistory, NoTurnError, RunRepositories
from app.results.review import findings, review_of_reports
from app.results.service import ServiceExtension
from storage.records import RunDetail
from storage.records.results import Artifact, Change, LogChunk, Review, RunTurns, Unavailable

T = TypeVar("T")
_MAX_REVIEWS: Final = 20
_MAX_REVIEW: Final = 2 << 20
"""Bytes of one."""


class Results:
    """The results of one profile's runs. Raises nothing for a missing result: it returns the reason."""

    def __init__(
        self, settings: Settings, service: ServiceExtension | None = None, network: Network | None = None
    ) -> None:
        git = Git(network=network or Network())
        # All profiles share the repositories that were fetched; their files may be deleted.
        mirrors = data_root(settings) / "repositories"
        most_mb = settings.results.mirrors_mb
        self.repositories = RunRepositories(mirrors, settings.repositories, most_mb=most_mb, git=git)
        self._reviews = settings.results.reviews
        self._service = service

    async def turns(self, detail: RunDetail) -> RunTurns | Unavailable:
        """The run's turns, from the service or from the commits."""
        answer = await self._turns(detail.run.run_id)
        if isinstance(answer, RunTurns):
            return answer
        try:
            history = await self.repositories.history(detail)
        except GitError as error:
            return Unavailable(f"{error} {answer.reason}")
        return RunTurns(detail.run.run_id, tuple(entry.turn for entry in history.turns), "git", history.note)

    async def change(
        self, detail: RunDetail, turn: int | None = None, run_turns: RunTurns | Unavailable | None = None
    ) -> Change | Unavailable:
        """The change of a turn, or of the whole run: from git, which has the files as well, or from the service.

        `run_turns` is the service's answer about the run's turns. None: it is asked.
        """
        run_id = detail.run.run_id
        if run_turns is None:
            run_turns = await self._turns(run_id)
        numbers = {row.number for row in run_turns.turns} if isinstance(run_turns, RunTurns) else set()
        if turn and numbers and turn not in numbers:
            return Unavailable(f"The run {safe_text(run_id)} has no turn {turn}; it has {len(numbers)}.")
        unpushed = unpushed_turn(run_turns, turn)
        if unpushed is not None and (turn or not commits_of(run_turns)):
            patch = await self._from_service(run_id, unpushed)
            if isinstance(patch, Unavailable):
                return patch
            note = f"Not pushed: turn {unpushed} left it as a patch. {patch.note}"
            return replace(patch, is_pushed=False, note=note)
        remark = ""
        if unpushed is not None:
            remark = f"Turn {unpushed} changed more, which is not pushed."
        change: Change | Unavailable
        try:
            change = await (await self.repositories.history(detail, commits_of(run_turns))).change(turn)
        except NoTurnError as error:
            return Unavailable(str(error))
        except GitError as error:
            change = await self._from_service(run_id, turn)
            if isinstance(change, Unavailable):
                return Unavailable(f"{error} {change.reason}")
        return replace(change, note=f"{remark} {change.note}".strip())

    async def _from_service(self, run_id: str, turn: int | None) -> Change | Unavailable:
        change = await self._ask(lambda client: client.run_diff(run_id, turn))
        if isinstance(change, Unavailable):
            return change
        patch = Patch(change.patch)
        # The ids in a service's patch cannot be looked up: only a repository has the files.
        files = await asyncio.to_thread(patch.changed_files)
        return replace(
            change,
            files=tuple(replace(file, old_blob=None, new_blob=None) for file in files),
            note=" ".join(filter(None, (change.note, patch.problem))),
            base_name=change.base_name or "the base that the service chose",
        )

    async def history(self, detail: RunDetail) -> CommitHistory | Unavailable:
        """The run's commits, which only git has."""
        answer = await self._turns(detail.run.run_id)
        return await _from_git(self.repositories.history(detail, commits_of(answer)))

    async def reviews(self, detail: RunDetail, turn: int | None = None) -> tuple[Review, ...] | Unavailable:
        """The agent's findings, and the Markdown that a turn, or the whole run, added or changed; never empty."""
        answer = await self._turns(detail.run.run_id)
        written = await self._written(detail, turn, answer)
        turns = answer.turns if isinstance(answer, RunTurns) else ()
        with_findings = [row for row in turns if row.findings is not None and turn in {None, row.number}]
        if not with_findings:
            return written
        report = review_of_reports(with_findings[-1].number, with_findings[-1].findings or ())
        if isinstance(written, Unavailable):
            return (report,)
        reported_lines = {(finding.path, finding.line) for review in written for finding in review.findings}
        # Findings that the written reviews also name add nothing.
        adds = any((finding.path, finding.line) not in reported_lines for finding in report.findings)
        return (report, *written) if adds else written

    async def _written(
        self, detail: RunDetail, turn: int | None, run_turns: RunTurns | Unavailable
    ) -> tuple[Review, ...] | Unavailable:
        change = await self.change(detail, turn, run_turns)
        if isinstance(change, Unavailable):
            return change
        if not change.files:
            return Unavailable("No review: no file was changed.")
        matches = [
            (number, file)
            for number, file in enumerate(change.files)
            if file.kind not in {"deleted", "submodule"} and not file.is_binary
            if any(fnmatchcase(file.path, pattern) for pattern in self._reviews)
        ]
        reviews = list[Review]()
        is_in_git = change.source == "git"
        patch = Patch(b"" if is_in_git else change.patch)
        await asyncio.to_thread(patch.read)
        for number, file in matches[:_MAX_REVIEWS]:
            if is_in_git:
                octets = await self.blob(detail, file.new_blob or "", _MAX_REVIEW)
            else:
                octets = await asyncio.to_thread(new_side, patch, patch.files[number])
            if isinstance(octets, Unavailable):
                return octets
            text = octets.decode(errors="replace")
            is_whole = is_in_git or file.kind == "added"
            note = "" if is_whole else "Only its changed parts: the whole needs the repository."
            if text or is_in_git:
                reviews.append(Review(file.path, text, await asyncio.to_thread(findings, text), change.source, note))
        patterns = " or ".join(self._reviews) or "nothing: results.reviews is empty"
        return tuple(reviews) or Unavailable(
            f"No review: none of the {len(change.files)} changed files matches {patterns}."
        )

    async def log(
        self, run_id: str, turn: int, *, offset: int = 0, wait_s: int = 0, before: int | None = None
    ) -> LogChunk | Unavailable:
        """A piece of a turn's log, which only a service has; see `Client.run_log`."""
        return await self._ask(lambda client: client.run_log(run_id, turn, offset=offset, wait_s=wait_s, before=before))

    async def artifact(self, run_id: str, turn: int, artifact: Artifact) -> bytes | Unavailable:
        """The content of a file that a turn's agent left, which only a service has."""
        return await self._ask(lambda client: client.run_artifact(run_id, turn, artifact))

    async def file(self, detail: RunDetail, path: str, turn: int | None = None) -> Change | Unavailable:
        """A whole file as the run, or a turn, left it, as a change of none of its lines: git alone has it."""
        history = await self.history(detail)
        if isinstance(history, Unavailable):
            return history
        commits = (entry.turn.commit for entry in history.turns if entry.turn.number == turn)
        return await _from_git(history.mirror.file(next(commits, None) or history.head, path))

    async def blob(self, detail: RunDetail, blob: str, max_bytes: int = MAX_FILE) -> bytes | Unavailable:
        """A file's whole content of at most `most` bytes, by an id of a change that came from git."""
        try:
            return await self.repositories.mirror(detail.run.repository).blob(blob, max_bytes)
        except GitError as error:
            return Unavailable(str(error))

    async def _turns(self, run_id: str) -> RunTurns | Unavailable:
        return await self._ask(lambda client: client.run_detail(run_id))

    async def _ask(self, question: Callable[[Client], Awaitable[T]]) -> T | Unavailable:
        if self._service is None:
            return Unavailable("The service is not asked.")
        try:
            return await self._service.ask(question)
        except ApiError as error:
            return Unavailable(error.message)


async def _from_git(reading: Awaitable[T]) -> T | Unavailable:
    try:
        return await reading
    except GitError as error:
        return Unavailable(str(error))


def commits_of(run_turns: RunTurns | Unavailable | None) -> dict[int, str]:
    """Each turn's commit, as far as the service names it."""
    turns = run_turns.turns if isinstance(run_turns, RunTurns) else ()
    return {turn.number: turn.commit for turn in turns if turn.commit}


def unpushed_turn(run_turns: RunTurns | Unavailable | None, turn: int | None) -> int | None:
    """The turn of which the service has only a patch: the given one or, for the run, the last one not undone."""
    turns = run_turns.turns if isinstance(run_turns, RunTurns) else ()
    # A turn that never began left everything as it was.
    last = next(
        (row for row in reversed(turns) if (row.number == turn if turn else row.started_at)),
        None,
    )
    if last is None:
        return None
    is_passed_on = not turn and last.files is None and last.outcome != "completed"
    if last.is_unpushed:
        return last.number
    return last.from_turn if is_passed_on else None
