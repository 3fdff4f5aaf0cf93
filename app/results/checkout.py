"""Using a run's change: applied to a checkout, or its branch checked out next to one. Artifacts are saved.

A run's files are not trusted: no hook, filter or monitor is executed here, and nothing is written outside of the
checkout.
"""

import asyncio
import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

from app.engine.text import safe_text
from app.results.diff import Patch, as_name, new_side
from app.results.git import Git, GitError
from app.results.repository import CommitHistory
from storage.records import Repository
from storage.records.results import LINK_MODE, SUBMODULE_MODE, Change

_SHOWN: Final = 5
_EXECUTABLE: Final = "100755"
_RISKS: Final = {
    ".gitattributes": "it may name filters that your git runs",
    ".gitmodules": "it names other repositories",
}
_LOGIN: Final = re.compile(r"//[^/@]*@")
_SLUG: Final = re.compile(r"[^A-Za-z0-9._]+")


class Applied(Struct, frozen=True):
    """A change that was applied to a checkout but not committed."""

    folder: Path
    files: int
    remarks: tuple[str, ...]
    """Remarks to read before using the checkout."""


class CheckedOut(Struct, frozen=True):
    """A new checkout of a run's branch."""

    folder: Path
    commit: str
    shares: Path | None
    """The checkout that lends its objects and has to stay."""


class AnotherRepositoryError(GitError):
    """The checkout is of another repository than the run: a user may want that, and has to confirm it."""


async def check_remotes(folder: Path, repository: Repository, address: str | None) -> str:
    """Check a checkout's remotes against a repository; return a remark if it has none.

    Raises:
        AnotherRepositoryError: None of its remotes leads there, by the repository's name or the configured address.
        GitError: There is no checkout.
    """
    git = Git()
    top = await _top_level(folder, git)
    label = safe_text(repository.label, limit=120)
    output = b""
    with suppress(GitError):  # Fails without remotes.
        output = await git.work(top, "config", "--null", "--get-regexp", r"^remote\..*\.(push)?url$")
    remotes = {as_name(entry.partition(b"\n")[2]) for entry in output.split(b"\0") if entry}
    if address is not None and _comparable(address, top) in {
        str(top.resolve()),
        *(_comparable(remote, top) for remote in remotes),
    }:
        return ""
    if not remotes:
        return f"{safe_text(str(top))} has no remotes: nothing says whether it is a checkout of {label}."
    parts = _parts(repository.path)
    if any(_parts(remote)[-len(parts) :] == parts for remote in remotes):
        return ""
    leads = _names({_LOGIN.sub("//", remote) for remote in remotes})
    raise AnotherRepositoryError(f"{safe_text(str(top))} has no remote of {label}: it is a checkout of {leads}.")


async def apply(change: Change, folder: Path, git: Git | None = None) -> Applied:
    """Apply a change to the checkout that a folder is in, whole or not at all.

    Raises:
        GitError: It does not fit or is not whole, a path leads out of the checkout, or that has uncommitted changes.
    """
    git = git or Git()
    patch = Patch(change.patch)
    await asyncio.to_thread(patch.read)
    remarks = check(change, patch)
    top = await _top_level(folder, git)
    for file in patch.files:
        for old in (file.names.get("rename from"), file.names.get("copy from")):
            # A patch that moves a link does not show the link's target.
            if old and (top / old).is_symlink() and not _leads_inside(file.path, str((top / old).readlink())):
                raise GitError(
                    f"The change makes {_names([file.path])} a link out of the checkout. Nothing was applied."
                )
    options = ("--porcelain", "-z", "--untracked-files=no", "--ignore-submodules=all", "--no-renames")
    if dirty := [as_name(line[3:]) for line in (await git.work(top, "status", *options)).split(b"\0") if line]:
        raise GitError(f"{safe_text(str(top))} has uncommitted changes ({_names(dirty)}). Commit or stash them first.")
    # If files are in the way, git would report only that the patch does not apply.
    changed = [file.changed_file() for file in patch.files]
    deleted = {entry.path for entry in changed if entry.kind == "deleted"}
    deleted |= {entry.old_path for entry in changed if entry.kind == "renamed" and entry.old_path}
    new = {entry.path for entry in changed if entry.kind in {"added", "renamed", "copied"}} - deleted
    if there := _existing(top, new):
        reason = "applied before, or your own untracked files. Nothing was applied."
        raise GitError(f"{safe_text(str(top))} has {_names(there)} already, {reason}")
    command = ("apply", "--whitespace=nowarn")
    output = await git.work(top, *command, "--numstat", "-z", stdin=change.patch)
    if (count := len(re.findall(rb"(?:^|\0)(?:\d+|-)\t(?:\d+|-)\t", output))) != len(patch.files):
        raise GitError(f"git would apply {count} of {len(patch.files)} files. Nothing was applied.")
    try:
        await git.work(top, *command, "--check", stdin=change.patch)
    except GitError as error:
        fix = "A turn's change builds on the turns before it: apply the whole run's, or check its branch out."
        raise GitError(f"It does not fit this checkout. {fix} {error}") from error
    await git.work(top, *command, stdin=change.patch)
    left: dict[str, bool] = {}
    for entry in changed:  # A file that becomes a link appears twice: deleted and added.
        left[entry.path] = left.get(entry.path, False) or entry.kind != "deleted"
    if missing := _existing(top, left) ^ {path for path, is_there in left.items() if is_there}:
        raise GitError(f"git did not apply the change to {_names(missing)}. See: git status")
    return Applied(top, len(patch.files), remarks)


def check(change: Change, patch: Patch) -> tuple[str, ...]:
    """Remarks on a change.

    Raises:
        GitError: It must not be applied: it is not whole, or leads out of the checkout.
    """
    if not patch.files:
        raise GitError("The change is empty: there is nothing to apply.")
    if patch.problem or not change.is_whole:
        raise GitError(f"The change is not whole: nothing was applied. {patch.problem or change.note}")
    outside = {name for file in patch.files for name in file.names.values() if not is_inside(name)}
    if outside or not all(file.path for file in patch.files):
        raise GitError(f"The change names {_names(outside)}, which no checkout may hold. Nothing was applied.")
    links = {
        file.path: as_name(new_side(patch, file))
        for file in patch.files
        if file.changed_file().new_mode == LINK_MODE and file.hunks
    }
    if bad := [path for path, target in links.items() if not _leads_inside(path, target)]:
        raise GitError(f"The change makes {_names(bad)} a link out of the checkout. Nothing was applied.")
    remarks = []
    for file in patch.files:
        changed = file.changed_file()
        name = safe_text(file.path)
        if reason := _RISKS.get(PurePosixPath(file.path).name.casefold()):
            remarks.append(f"{name}: {reason}.")
        if file.path in links:
            remarks.append(f"{name} is a link to {safe_text(links[file.path])}.")
        if changed.new_mode == SUBMODULE_MODE:
            remarks.append(f"{name} is a submodule: its content is not part of the change.")
        if changed.new_mode == _EXECUTABLE != changed.old_mode:
            remarks.append(f"{name} is executable.")
    return tuple(remarks)


async def check_out(history: CommitHistory, branch: str, folder: Path) -> CheckedOut:
    """Check out a run's branch in a new folder: next to the checkout that `folder` is in, or in `folder`.

    It shares the objects of a checkout of the same repository, and is a clone otherwise.

    Raises:
        GitError: The folder exists, or the branch cannot be fetched or checked out.
    """
    git = history.mirror.git
    address = history.mirror.address
    beside = None
    with suppress(GitError):
        beside = await _top_level(folder, git)
    shares = None
    if beside and history.base and await _holds(beside, history.base, git):
        shares = beside
    name = re.split(r"[/:]", address.rstrip("/"))[-1].removesuffix(".git")
    parent = beside.parent if beside else folder
    folder = parent / f"{_SLUG.sub('-', name)}-{_SLUG.sub('-', branch).strip('-.')}"
    with suppress(GitError):  # The folder is free, or its branch is unknown.
        head = await git.work(folder, "symbolic-ref", "--quiet", "HEAD")
        if as_name(head.removesuffix(b"\n")) != f"refs/heads/{branch}":
            # The folder of a branch whose name differs only in replaced characters.
            mark = hashlib.sha256(branch.encode("utf-8", "surrogatepass")).hexdigest()[:6]
            folder = folder.with_name(f"{folder.name}-{mark}")
    if await asyncio.to_thread(os.path.lexists, folder):
        raise GitError(f"{safe_text(str(folder))} is there already: remove it, or name another place.")
    origin, way = (str(shares), "--shared") if shares else (address, "--filter=blob:none")
    clone = ("clone", "--quiet", "--no-checkout", "--template=", "--no-tags", way, "--", origin, str(folder))
    try:
        await git.work(parent, *clone)
        await git.work(folder, "remote", "set-url", "--", "origin", address)
        if not await _holds(folder, history.head, git):
            fetch = ("fetch", "--quiet", "--no-tags", "--", "origin")
            try:
                await git.work(folder, *fetch, history.head)
            except GitError:  # Some servers return only a branch's tip.
                await git.work(folder, *fetch, f"refs/heads/{branch}")
        await git.work(folder, "checkout", "--quiet", "--no-recurse-submodules", "-B", branch, history.head, "--")
    except BaseException:
        # The folder is ours, since it did not exist before.
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        raise
    return CheckedOut(folder, history.head, shares)


def save(folder: Path, name: str, content: bytes) -> Path:
    """Write an artifact into a folder, or below it; nothing there is replaced. Raises as `check_out`."""
    path = folder / name
    is_linked = any(part.is_symlink() for part in path.parents if part != folder and part.is_relative_to(folder))
    if is_linked or not (name.isprintable() and is_inside(name)) or {"\\", ":"} & set(name):
        raise GitError(f"{safe_text(name)} leads elsewhere, or is no name for a file here. Save it from the page.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            file.write(content)
    except OSError as error:
        raise GitError(
            f"{safe_text(str(path))}: {error.strerror}. Nothing is replaced: name another folder."
        ) from error
    return path


async def _top_level(folder: Path, git: Git) -> Path:
    try:
        top = await git.work(folder, "rev-parse", "--show-toplevel")
    except GitError as error:
        fix = "Name a folder that git clone made."
        raise GitError(f"{safe_text(str(folder))} is not in a git checkout. {fix} {error}") from error
    return Path(as_name(top.removesuffix(b"\n")))


async def _holds(folder: Path, commit: str, git: Git) -> bool:
    with suppress(GitError):
        await git.work(folder, "cat-file", "-e", f"{commit}^{{commit}}")
        return True
    return False


def _parts(address: str) -> list[str]:
    return re.split(r"[/:]+", address.strip().rstrip("/").removesuffix(".git").casefold())


def _comparable(address: str, top: Path) -> str:
    """An address in a form that can be compared: a path is made absolute."""
    path = address.removeprefix("file://").rstrip("/")
    if "://" not in path and not re.match(r"[^/]+:", path):
        path = os.path.realpath(top / Path(path).expanduser())
    return path.removesuffix(".git")


def _existing(top: Path, paths: Iterable[str]) -> set[str]:
    """The paths that exist, including broken links."""
    return {path for path in paths if os.path.lexists(top / path)}


def is_inside(path: str) -> bool:
    """Whether a path stays inside the checkout and outside git's own folder, under any spelling."""
    parts = path.split("/")
    plain = {part.casefold().rstrip(". ").split(":")[0] for part in parts}
    return not ({"", ".", ".."} & set(parts) or {".git", "git~1"} & plain)


def _leads_inside(link: str, target: str) -> bool:
    """Whether a link stays inside even through other links: it goes up only at its start, and not too far."""
    parts = target.split("/")
    up = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    rest = [part for part in parts[up:] if part != "."]
    return up <= link.count("/") and (not rest or is_inside("/".join(rest)))


def _names(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return ", ".join(safe_text(name, limit=120) for name in ordered[:_SHOWN]) + more
