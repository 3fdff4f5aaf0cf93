"""Turns, changes and reviews are read from real repositories, whatever happened to the branch."""

import asyncio
from pathlib import Path

import pytest

from app.results.git import GitError
from app.results.repository import BY_TIME, RunRepositories
from app.results.service import pull_number
from storage.records.results import Change
from tests.results.repository import Origin, change_of, git, repositories, run_detail

TWO_TURNS = (("working", 0), ("completed", 120), ("working", 600), ("completed", 700))


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return Origin(tmp_path / "host")


@pytest.fixture
def found(origin: Origin, tmp_path: Path) -> RunRepositories:
    return repositories(tmp_path / "data", origin.url)


def names(change: Change) -> list[str]:
    return [file.path for file in change.files]


async def test_turns_and_runs_have_their_own_changes(origin: Origin, found: RunRepositories, tmp_path: Path) -> None:
    """The base is the merge base for the whole run and the first parent for a turn, without other people's work.

    In a local checkout, remote-tracking branches are preferred to its own, which may be older.
    """
    review = b"### `code.py`\n\n- **major** line 2: x\n"
    first = origin.commit("agent/x", {"a.txt": b"1\n", "reviews/r.md": review}, mark="run_1 turn 1")
    second = origin.commit("agent/x", {"a.txt": b"1\n2\n"}, at=650, mark="run_1 turn 2")
    origin.commit("main", {"other.txt": b"x\n"}, at=660)
    git(tmp_path, "clone", "--quiet", str(origin.bare), "checkout")
    git(tmp_path / "checkout", "branch", "--quiet", "agent/x", "main")
    local = await change_of(repositories(tmp_path / "local", str(tmp_path / "checkout")), run_detail())
    detail = run_detail("agent/x", *TWO_TURNS)
    whole, turn = await change_of(found, detail), await change_of(found, detail, 2)
    history = await found.history(detail)
    written = next(file.new_blob for file in whole.files if file.path == "reviews/r.md")

    assert (names(whole), whole.base_name, whole.note) == (["a.txt", "reviews/r.md"], "merge base with main", "")
    assert (local.head, local.base_name) == (second, "merge base with main")
    assert (names(turn), turn.base, turn.head, turn.base_name) == (["a.txt"], first, second, "its first parent")
    assert [(each.turn.number, each.turn.commit) for each in history.turns] == [(1, first), (2, second)]
    assert {each.turn.summary for each in history.turns} == {"Work on agent/x"}
    assert await history.mirror.blob(written or "", 100) == review


async def test_unmarked_commits_belong_to_turns_by_time(origin: Origin, found: RunRepositories) -> None:
    """Commits from before the run are excluded."""
    origin.commit("agent/x", {"before.txt": b"x"}, at=-60, start="main")
    first = origin.commit("agent/x", {"a.txt": b"x"}, at=60)
    second = origin.commit("agent/x", {"b.txt": b"x"}, at=650)
    history = await found.history(run_detail("agent/x", *TWO_TURNS))

    assert [each.turn.commit for each in history.turns] == [first, second]
    assert history.note == BY_TIME
    assert names(await change_of(found, run_detail("agent/x", *TWO_TURNS), 1)) == ["a.txt"]


async def test_pinned_commits_survive_a_deleted_branch(origin: Origin, found: RunRepositories) -> None:
    """Each turn's commit is pinned when it is first seen."""
    first = origin.commit("agent/x", {"a.txt": b"1\n"}, mark="run_1 turn 1")
    detail = run_detail("agent/x")
    await found.history(detail)
    git(origin.work, "reset", "--quiet", "--hard", "main")
    origin.commit("agent/x", {"b.txt": b"1\n"}, at=650, mark="run_1 turn 2")
    rewritten = await found.history(run_detail("agent/x", *TWO_TURNS))
    git(origin.bare, "branch", "--quiet", "-D", "agent/x")
    gone = await change_of(found, detail, 1)

    assert rewritten.turns[0].turn.commit == first
    assert "rewritten" in rewritten.note
    assert (names(gone), gone.head) == (["a.txt"], first)
    assert "agent/x is gone" in gone.note


async def test_a_pull_request_replaces_a_deleted_branch(origin: Origin, found: RunRepositories) -> None:
    """The service's number or address identifies it, or a known commit does."""
    assert pull_number('{"pull_request_url": "https://h/a/b/pull/12"}') == 12
    assert pull_number('{"merge_request": {"iid": 3}}') == 3
    assert pull_number('{"pull_request": {"number": "0", "url": "https://h/a/b/pull/12"}}') == 12
    for raw in ('{"pull_request": true, "pr_number": -1}', "[]", "no JSON"):
        assert pull_number(raw) is None
    commit = origin.commit("agent/x", {"a.txt": b"1\n"})
    git(origin.bare, "update-ref", "refs/pull/7/head", commit)
    git(origin.bare, "branch", "--quiet", "-D", "agent/x")
    git(origin.bare, "config", "uploadpack.allowAnySHA1InWant", "false")
    with pytest.raises(GitError, match="no branch agent/x, and nothing of it was kept"):
        await change_of(found, run_detail())
    with pytest.raises(GitError, match="no branch agent/x yet"):
        await change_of(found, run_detail("agent/x", ("working", 0)))
    by_number = await change_of(found, run_detail(raw_json='{"pull_request": {"number": 7}}'))
    by_commit = await change_of(found, run_detail(), service_commits={1: commit})

    assert (names(by_number), names(by_commit)) == (["a.txt"], ["a.txt"])
    assert "pull request 7" in by_number.note


async def test_a_hostile_branch_name_is_never_an_option(origin: Origin, found: RunRepositories) -> None:
    """The branch is refused or not found; the message is printable."""
    for branch in ("--upload-pack=x", "-x", "a\nb", "", "a..b", "*", "\x1b[2J"):
        with pytest.raises(GitError) as caught:
            await change_of(found, run_detail(branch))
        assert str(caught.value).isprintable()


async def test_two_processes_may_fetch_at_once(origin: Origin, tmp_path: Path) -> None:
    """Each waits for the other, and a lock left by a killed process is released."""
    origin.commit("agent/x", {"a.txt": b"1\n"}, mark="run_1 turn 1")
    several = [repositories(tmp_path / "data", origin.url) for _ in range(3)]
    await several[0].history(run_detail())
    (several[0].mirror(run_detail().run.repository).git_dir / "config.lock").touch()
    changes = await asyncio.gather(*(change_of(each, run_detail()) for each in several))

    assert len({change.patch for change in changes}) == 1
